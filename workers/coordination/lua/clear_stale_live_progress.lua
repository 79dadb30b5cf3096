-- ClearStaleLiveProgress(j): drop live progress that current authority and a live lease do not back.
-- ATOMIC   what is deleted is compared with the caller's read of PostgreSQL: a report of a token that was allocated after
--          that read stays. A token that has lost authority never gets it back, so the rest of that read is stable.
-- KEYS     permits index lease_due reservation_due progress
-- ARGV     nonce
-- ELEMENT  job current_token authority
-- REPLIES  cleared | no_live_progress | progress_is_backed | newer_than_read
-- USES     base permits

return each(function(e)
  local text = redis.call('HGET', KEY.progress, e.job)
  if not text then return 'no_live_progress' end
  local shown = decode('progress', text)
  if shown then
    if shown.token > tonumber(e.current_token) then return 'newer_than_read' end
    local lease = held('lease', e.job)
    if shown.token == tonumber(e.authority) and lease and lease.token == shown.token then return 'progress_is_backed' end
  end
  redis.call('HDEL', KEY.progress, e.job)
  return 'cleared'
end)
