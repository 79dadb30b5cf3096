-- ExpireLease(a), for every lease past its deadline: remove it. Its attempt can only stop, its job only be reaped.
-- ATOMIC   the deadline is compared by the clock and the data that the removal sees; nothing else removes a lapsed lease,
--          so a lease that was seen absent stays absent.
-- KEYS     permits index lease_due reservation_due
-- ARGV     nonce life_ms grace_ms gap_ms rows_max
-- ELEMENT  -
-- REPLIES  swept | grace
-- USES     base permits sweep

return sweep('lease', 'token')
