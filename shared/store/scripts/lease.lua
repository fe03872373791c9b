-- KEYS: fence, leases, holders, deliveries, replies, index, own queue, offered, other queues...
-- ARGV: owner, fence, ttl_ms, max_items, max_deliveries, request
-- Returns {verdict, elsewhere, poisoned, queued, item, delivery, item, delivery, ...}
local owner, ttl, max_items, max_deliveries = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local current = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[2]) < current then return {'stale', current, ''} end

-- The same request once more: its reply was lost on the way. A new hand-out would leave the first one in no one's hands.
local last = redis.call('HGET', KEYS[5], owner)
if last and string.sub(last, 1, #ARGV[6]) == ARGV[6] then return cmsgpack.unpack(string.sub(last, #ARGV[6] + 1)) end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function count(item) return tonumber(redis.call('HGET', KEYS[4], item) or '0') end
-- An item that was lost before and may be handed out only once more goes alone, so that the next loss tells it from
-- the items it shared a worker with.
local function is_last_chance(item)
  local delivered = count(item)
  return delivered > 0 and delivered == max_deliveries - 1
end

local holder, held, elsewhere = {}, 0, 0
local pairs_of_holders = redis.call('HGETALL', KEYS[3])
for at = 1, #pairs_of_holders, 2 do
  local item = pairs_of_holders[at]
  holder[item] = pairs_of_holders[at + 1]
  if holder[item] ~= owner then
    elsewhere = elsewhere + 1
  else
    held = held + 1
    if count(item) > 1 and count(item) >= max_deliveries then max_items = 0 end
  end
end

local expired = {}
for _, item in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now)) do
  if holder[item] ~= owner then
    if count(item) >= max_deliveries then return {'ok', elsewhere, item, 0} end
    expired[#expired + 1] = item
  end
end

local reply = {'ok', elsewhere, '', 0}
-- Hands the item out, unless it must go alone and cannot.
local function hand_out(item)
  local alone = is_last_chance(item)
  if alone and held > 0 then return false end
  redis.call('ZADD', KEYS[2], now + ttl, item)
  redis.call('HSET', KEYS[3], item, owner)
  reply[#reply + 1] = item
  reply[#reply + 1] = redis.call('HINCRBY', KEYS[4], item, 1)
  held = held + 1
  max_items = alone and 0 or max_items - 1
  return true
end
local function hand_out_from(key, most)
  while max_items > 0 and most > 0 do
    local item = redis.call('LINDEX', key, 0)
    if not item or not hand_out(item) then break end
    redis.call('LPOP', key)
    most = most - 1
  end
end
hand_out_from(KEYS[7], max_items)
hand_out_from(KEYS[8], max_items)
-- Half of another actor's items, and only for a worker that would be idle: that actor may be about to come for them.
if held == 0 then
  for key = 9, #KEYS do hand_out_from(KEYS[key], math.ceil(redis.call('LLEN', KEYS[key]) / 2)) end
end
for _, item in ipairs(expired) do
  if max_items > 0 and hand_out(item) then reply[2] = reply[2] - 1 end
end

reply[4] = redis.call('LLEN', KEYS[7]) + redis.call('LLEN', KEYS[8])
if #reply > 4 then
  redis.call('HSET', KEYS[5], owner, ARGV[6] .. cmsgpack.pack(reply))
  redis.call('SADD', KEYS[6], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
end
return reply
