-- CountPermits: reservations and live leases, in all (scope `all`) or of one queue, concurrency key or incarnation.
-- ATOMIC   all counts of one call are of one moment.
-- KEYS     permits index lease_due reservation_due
-- ARGV     nonce
-- ELEMENT  scope name
-- REPLIES  -
-- USES     base permits

return each(function(e)
  if e.scope == 'all' then
    return { redis.call('ZCARD', KEY.reservation_due), redis.call('ZCARD', KEY.lease_due) }
  end
  return { permit_count_by(e.scope, e.name, 'reservation'), permit_count_by(e.scope, e.name, 'lease') }
end)
