"""Everything here runs against real servers; see stack_plugin.py for where they come from."""
