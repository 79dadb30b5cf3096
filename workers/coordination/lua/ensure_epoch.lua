-- EnsureEpoch: the current epoch, since when, and the time now. Every script that judges permits does the same first.
-- ATOMIC   a wipe or restart that happened before this answer has begun a new epoch in it.
-- KEYS     permits index lease_due reservation_due
-- ARGV     nonce
-- ELEMENT  -
-- REPLIES  ok
-- USES     base permits

ANSWER[4] = { 'ok' }
return ANSWER
