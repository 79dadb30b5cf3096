-- ListAbsentWorkers: which of these incarnations have no presence, once each had the time to renew it.
-- ATOMIC   per call. Whether one is Down is decided durably: absence is a reason to ask, not an answer.
-- KEYS     presence
-- ARGV     nonce presence_ms gap_ms
-- ELEMENT  incarnation
-- REPLIES  present | absent | grace
-- USES     base

-- Since when this key has been looked at lies in the key itself: whatever takes the presences takes that too.
local watch = decode('watch', redis.call('HGET', KEY.presence, '@watch'))
if not watch or NOW - watch.watched_ms > tonumber(ARG.gap_ms) then
  watch = { grace_until_ms = NOW + tonumber(ARG.presence_ms) }
end
watch.watched_ms = NOW
watch.grace_until_ms = math.min(watch.grace_until_ms, NOW + tonumber(ARG.presence_ms))
redis.call('HSET', KEY.presence, '@watch', cjson.encode(watch))

local function deadline_of(text)
  return is_digits(text) and math.min(tonumber(text), NOW + LIFE_MS_MAX) or nil
end

-- Whoever ended without a word is forgotten in the end. What was promised before the clock was set back counts from now.
local latest_ms = NOW + tonumber(ARG.presence_ms)
local all = redis.call('HGETALL', KEY.presence)
for place = 1, #all, 2 do
  local deadline_ms = deadline_of(all[place + 1])
  if all[place] ~= '@watch' and (not deadline_ms or deadline_ms < NOW - LIFE_MS_MAX) then
    redis.call('HDEL', KEY.presence, all[place])
  elseif all[place] ~= '@watch' and deadline_ms > latest_ms then
    redis.call('HSET', KEY.presence, all[place], latest_ms)
  end
end

return each(function(e)
  if NOW < watch.grace_until_ms then return 'grace' end
  local deadline_ms = deadline_of(redis.call('HGET', KEY.presence, e.incarnation))
  if deadline_ms and deadline_ms > NOW then return 'present' end
  return 'absent'
end)
