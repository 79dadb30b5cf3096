-- CleanTerminalCoordination(j): nothing of a terminal job stays but a lease, which ReleaseLease ends.
-- ATOMIC   all or nothing, and only if nothing there is newer than the caller's read of PostgreSQL.
-- KEYS     permits index lease_due reservation_due markers notices progress
-- ARGV     nonce
-- ELEMENT  job current_token
-- REPLIES  cleaned | coordination_clean | newer_than_read
-- USES     base permits

return each(function(e)
  local current_token = tonumber(e.current_token)
  local marker_text = redis.call('HGET', KEY.markers, e.job)
  local notice_text = redis.call('HGET', KEY.notices, e.job)
  local progress_text = redis.call('HGET', KEY.progress, e.job)
  local reservation = held('reservation', e.job)
  if not (marker_text or notice_text or progress_text or reservation) then return 'coordination_clean' end
  local marker, notice = decode('marker', marker_text), decode('notice', notice_text)
  local progress = decode('progress', progress_text)
  local newest = math.max(
    reservation and reservation.expected_token - 1 or 0, marker and marker.expected_token - 1 or 0,
    notice and notice.token or 0, progress and progress.token or 0)
  if newest > current_token then return 'newer_than_read' end
  if reservation then remove('reservation', e.job, reservation) end
  redis.call('HDEL', KEY.markers, e.job)
  redis.call('HDEL', KEY.notices, e.job)
  redis.call('HDEL', KEY.progress, e.job)
  return 'cleaned'
end)
