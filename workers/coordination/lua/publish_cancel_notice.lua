-- PublishCancelNotice(j): tell the worker that runs the job that cancel was requested.
-- ATOMIC   trivially: a cancel is never taken back, so a notice that is present is right whatever its token.
-- KEYS     notices
-- ARGV     nonce
-- ELEMENT  job token
-- REPLIES  published | notice_present
-- USES     base

return each(function(e)
  if decode('notice', redis.call('HGET', KEY.notices, e.job)) then return 'notice_present' end
  redis.call('HSET', KEY.notices, e.job, cjson.encode({ token = tonumber(e.token), at_ms = NOW }))
  return 'published'
end)
