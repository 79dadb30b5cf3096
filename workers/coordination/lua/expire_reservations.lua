-- ExpireReservation(j), for every reservation past its deadline: remove it, so that the job may be offered again or reaped.
-- ATOMIC   the deadline is compared by the clock and the data that the removal sees.
-- KEYS     permits index lease_due reservation_due
-- ARGV     nonce life_ms grace_ms gap_ms rows_max
-- ELEMENT  -
-- REPLIES  swept | grace
-- USES     base permits sweep

return sweep('reservation', 'expected_token')
