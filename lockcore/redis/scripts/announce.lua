-- ANNOUNCE (docs/protocol.md, STORAGE GENERATION): writes the floor of a change of the storage generation to a node,
-- admitted or not, if it is far enough above the epochs that the node has seen, and nobody has written another floor
-- since the gateway saw that of the node. Leases, counters and base stay as they are.
-- KEYS  fg:node
-- ARGV  run id, epoch of the floor, id of the change, distance: by how much the epoch has to be above those that the
--       node has seen, epoch of the floor that the gateway saw
-- Reply 'ADMITTED' | 'OK' (it has the floor, and is not admitted) | the highest epoch that the node has seen, of its
--       base and of a floor of another change, if the floor is too close to it | 'CHANGED' epoch (the node's floor is
--       another than the gateway saw) | 'GONE' (the server was restarted)
-- Why atomic: of two changes with the same epoch, drawn from two registers, only one gets a node.
local live = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if live ~= ARGV[1] then return 'GONE' end
local node = redis.call('HMGET', KEYS[1], 'run', 'marks', 'base', 'floor')
local floor, epoch = ARGV[2] .. ' ' .. ARGV[3], tonumber(ARGV[2])
local base = math.floor(tonumber(node[3] or '0') / 4294967296)
if base >= epoch then return string.format('%.0f', base) end
if node[4] ~= floor then
  local announced = tonumber(string.match(node[4] or '0', '^%d+'))
  local seen = math.max(base, announced)
  if seen + tonumber(ARGV[4]) > epoch then return string.format('%.0f', seen) end
  -- A request that arrives when another change is finished would have all gateways take PostgreSQL for replaced.
  if announced ~= tonumber(ARGV[5]) then return string.format('CHANGED %.0f', announced) end
  redis.call('HSET', KEYS[1], 'floor', floor)
end
return node[1] == live and node[2] == command_marks() and 'ADMITTED' or 'OK'
