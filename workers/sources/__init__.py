"""What a transfer reads from. A source lists itself in a stable order, says what it is (its identity), and
tells when a member is no longer what the listing said."""
