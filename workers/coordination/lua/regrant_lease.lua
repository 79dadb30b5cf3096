-- RegrantLease(a): an attempt whose lease was lost with the data, not lapsed, has a live lease again.
-- ATOMIC   a permit is counted and taken in one step; only a lease of another epoch is granted again, so one that expired
--          is never revived; a newer attempt's lease is never displaced, an older one's is retired.
-- KEYS     permits index lease_due reservation_due
-- ARGV     nonce lease_ms
-- ELEMENT  job token attempt incarnation grant_epoch queue key global_limit queue_limit key_limit
-- REPLIES  regranted | already_live | lease_expired | superseded | global_limit | queue_limit | key_limit
-- USES     base permits

local function regrant(e)
  local token = tonumber(e.token)
  local lease = held('lease', e.job)
  if lease and lease.token == token and lease.attempt == e.attempt then return 'already_live' end
  if lease and lease.token >= token then return 'superseded' end
  if e.grant_epoch == EPOCH.value then return 'lease_expired' end
  local reached = limit_reached(e)
  if reached then return reached end
  if lease then remove('lease', e.job, lease) end
  put('lease', e.job, {
    token = token, attempt = e.attempt, incarnation = e.incarnation, queue = e.queue, key = e.key,
    epoch = EPOCH.value, since_ms = NOW, deadline_ms = NOW + tonumber(ARG.lease_ms),
  })
  return 'regranted'
end

return each(function(e) return { regrant(e), EPOCH.value } end)
