-- Enqueue(j): set the marker that offers the attempt `expected_token` of a job that is durably Queued.
-- ATOMIC   no marker appears beside a reservation; of several callers one is told to publish an offer.
-- KEYS     permits index lease_due reservation_due markers
-- ARGV     nonce reoffer_ms reoffer_max_ms
-- ELEMENT  job expected_token queue priority
-- REPLIES  enqueued | reoffered | marker_present | marker_for_newer_token | reserved
-- USES     base permits

local function is_due(marker)
  local wait_ms = tonumber(ARG.reoffer_ms) * 2 ^ math.min(math.max(marker.offers, 1) - 1, 30)
  return NOW - marker.offered_ms >= math.min(wait_ms, tonumber(ARG.reoffer_max_ms)) or marker.offered_ms > NOW
end

return each(function(e)
  local expected_token = tonumber(e.expected_token)
  if held('reservation', e.job) then return 'reserved' end
  local marker = decode('marker', redis.call('HGET', KEY.markers, e.job))
  local word = 'enqueued'
  if marker and marker.expected_token > expected_token then return 'marker_for_newer_token' end
  if marker and marker.expected_token == expected_token then
    if not is_due(marker) then return 'marker_present' end
    marker.offered_ms = NOW
    marker.offers = marker.offers + 1
    word = 'reoffered'
  else
    marker = {
      expected_token = expected_token, queue = e.queue, priority = tonumber(e.priority), set_ms = NOW,
      offered_ms = NOW, offers = 1, refused = '', refused_ms = 0,
    }
  end
  redis.call('HSET', KEY.markers, e.job, cjson.encode(marker))
  return word
end)
