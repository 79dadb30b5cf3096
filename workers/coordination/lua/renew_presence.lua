-- RenewPresence: these incarnations' processes run.
-- ATOMIC   trivially: one deadline each.
-- KEYS     presence
-- ARGV     nonce presence_ms
-- ELEMENT  incarnation
-- REPLIES  ok
-- USES     base

return each(function(e)
  redis.call('HSET', KEY.presence, e.incarnation, NOW + tonumber(ARG.presence_ms))
  return 'ok'
end)
