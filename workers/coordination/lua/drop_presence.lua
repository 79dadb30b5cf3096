-- DropPresence: these incarnations have ended.
-- ATOMIC   trivially.
-- KEYS     presence
-- ARGV     nonce
-- ELEMENT  incarnation
-- REPLIES  ok
-- USES     base

return each(function(e)
  redis.call('HDEL', KEY.presence, e.incarnation)
  return 'ok'
end)
