-- ReadNotices: whether each job's cancel notice is present.
-- ATOMIC   per job.
-- KEYS     notices
-- ARGV     nonce
-- ELEMENT  job
-- REPLIES  notice | none
-- USES     base

return each(function(e)
  return decode('notice', redis.call('HGET', KEY.notices, e.job)) and 'notice' or 'none'
end)
