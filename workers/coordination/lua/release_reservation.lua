-- ReleaseReservation(j): give back the permit of one reservation that can no longer become a lease.
-- ATOMIC   compared with what the caller holds or saw: a reservation made since is another claim and stays.
-- KEYS     permits index lease_due reservation_due
-- ARGV     nonce
-- ELEMENT  job expected_token incarnation claim
-- REPLIES  released | not_reserved | reserved_by_another
-- USES     base permits

return each(function(e)
  local reservation = held('reservation', e.job)
  if not reservation then return 'not_reserved' end
  local same = reservation.incarnation == e.incarnation and reservation.claim == e.claim
  if not same or reservation.expected_token ~= tonumber(e.expected_token) then return 'reserved_by_another' end
  remove('reservation', e.job, reservation)
  return 'released'
end)
