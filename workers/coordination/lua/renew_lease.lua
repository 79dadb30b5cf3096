-- RenewLease(a): push the deadline of the lease that this attempt still holds, even one past its deadline.
-- ATOMIC   a lease that is not present is never created: only the expire script ends one, and that end is final.
-- KEYS     permits index lease_due reservation_due
-- ARGV     nonce lease_ms
-- ELEMENT  job token attempt grant_epoch
-- REPLIES  renewed | lease_lost | lease_expired | superseded
-- USES     base permits

return each(function(e)
  local token = tonumber(e.token)
  local lease = held('lease', e.job)
  if lease and lease.token == token and lease.attempt == e.attempt then
    lease.since_ms = NOW
    lease.deadline_ms = NOW + tonumber(ARG.lease_ms)
    put('lease', e.job, lease)
    return 'renewed'
  end
  if lease and lease.token >= token then return 'superseded' end
  if e.grant_epoch == EPOCH.value then return 'lease_expired' end
  return 'lease_lost'
end)
