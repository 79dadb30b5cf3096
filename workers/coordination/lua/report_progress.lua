-- ReportProgress(a): leave a hint of how far the attempt is, if its lease is present.
-- ATOMIC   the lease is looked at in the step that writes: no report of an attempt without one appears.
-- KEYS     permits index lease_due reservation_due progress
-- ARGV     nonce
-- ELEMENT  job token attempt progress total phase
-- REPLIES  reported | unchanged | lease_not_live
-- USES     base permits

return each(function(e)
  local token = tonumber(e.token)
  local lease = held('lease', e.job)
  if not lease or lease.token ~= token or lease.attempt ~= e.attempt then return 'lease_not_live' end
  local shown = decode('progress', redis.call('HGET', KEY.progress, e.job))
  local report = { token = token, progress = e.progress, total = e.total, phase = e.phase, at_ms = NOW }
  redis.call('HSET', KEY.progress, e.job, cjson.encode(report))
  if shown and shown.token == token and shown.progress == e.progress then return 'unchanged' end
  return 'reported'
end)
