-- ReleaseLease(a): give back the permit of an attempt that is over.
-- ATOMIC   compared by token and attempt: another attempt's lease stays.
-- KEYS     permits index lease_due reservation_due
-- ARGV     nonce
-- ELEMENT  job token attempt
-- REPLIES  released | lease_not_live | superseded
-- USES     base permits

return each(function(e)
  local token = tonumber(e.token)
  local lease = held('lease', e.job)
  if not lease or lease.token < token then return 'lease_not_live' end
  if lease.token ~= token or lease.attempt ~= e.attempt then return 'superseded' end
  remove('lease', e.job, lease)
  return 'released'
end)
