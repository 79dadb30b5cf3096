"""The shell: commands that read or change jobs, and what they share (console.py)."""
