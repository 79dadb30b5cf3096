-- What every script starts from: Redis' clock, and facts as JSON whose shape is checked when read.
-- A value that does not fit its shape is treated as absent, a key of a foreign type is deleted: neither stops a script.

local NOW
do
  local time = redis.call('TIME')
  NOW = time[1] * 1000 + math.floor(time[2] / 1000)
end

local SCALE_MAX = 100000000000000 -- numbers up to here survive JSON and the client exactly
local LIFE_MS_MAX = 86400000

local function is_text(value)
  return type(value) == 'string' and #value <= 2048 and not string.find(value, '\0', 1, true)
end

local function is_int(value)
  return type(value) == 'number' and value == math.floor(value) and math.abs(value) <= SCALE_MAX
end

local function is_whole(value)
  return is_int(value) and value >= 0
end

local function is_digits(value)
  return type(value) == 'string' and #value <= 19 and string.find(value, '^%d+$') ~= nil
end

local function is_digits_or_none(value)
  return value == '' or is_digits(value)
end

local SHAPES = {
  epoch = {
    value = is_text, since_ms = is_whole, run_id = is_text,
    lease_swept_ms = is_whole, lease_grace_until_ms = is_whole,
    reservation_swept_ms = is_whole, reservation_grace_until_ms = is_whole,
  },
  marker = {
    expected_token = is_whole, queue = is_text, priority = is_int, set_ms = is_whole,
    offered_ms = is_whole, offers = is_whole, refused = is_text, refused_ms = is_whole,
  },
  reservation = {
    expected_token = is_whole, incarnation = is_text, claim = is_text, queue = is_text, key = is_text,
    epoch = is_text, since_ms = is_whole, deadline_ms = is_whole,
  },
  lease = {
    token = is_whole, attempt = is_text, incarnation = is_text, queue = is_text, key = is_text,
    epoch = is_text, since_ms = is_whole, deadline_ms = is_whole,
  },
  notice = { token = is_whole, at_ms = is_whole },
  progress = {
    token = is_whole, progress = is_digits, total = is_digits_or_none, phase = is_text, at_ms = is_whole,
  },
  watch = { watched_ms = is_whole, grace_until_ms = is_whole },
}

-- The fact that `text` spells, or nil.
local function decode(kind, text)
  if not text then return nil end
  local parsed, fact = pcall(cjson.decode, text)
  if not parsed or type(fact) ~= 'table' then return nil end
  for name, fits in pairs(SHAPES[kind]) do
    if not fits(fact[name]) then return nil end
  end
  if fact.deadline_ms then
    local life_ms = fact.deadline_ms - fact.since_ms
    if life_ms < 0 or life_ms > LIFE_MS_MAX then return nil end
  end
  return fact
end

local function age_ms(since_ms)
  return math.max(0, NOW - since_ms)
end

local TYPES = {
  permits = 'hash', index = 'zset', lease_due = 'zset', reservation_due = 'zset',
  markers = 'hash', notices = 'hash', progress = 'hash', presence = 'hash',
}

for name, key in pairs(KEY) do
  local found = redis.call('TYPE', key).ok
  if found ~= TYPES[name] and found ~= 'none' then redis.call('UNLINK', key) end
end

-- Every element's fields by the names in the header.
local function elements()
  local listed = {}
  for first = ARGUMENTS + 1, #ARGV, #ELEMENT do
    local element = {}
    for offset, name in ipairs(ELEMENT) do element[name] = ARGV[first + offset - 1] end
    listed[#listed + 1] = element
  end
  return listed
end

-- The answer of a script: the epoch (permits.lua puts it there) and one reply per element, in order.
local ANSWER = { '', 0, NOW, {} }
local function each(decide)
  for place, element in ipairs(elements()) do ANSWER[4][place] = decide(element) end
  return ANSWER
end
