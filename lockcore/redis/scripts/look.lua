-- LOOK: returns the lease of a resource on this node, with any holder. It changes no lease, but may correct its time
-- (time_left).
-- KEYS  fg:node, then for each resource: its lease key
-- ARGV  run id, then '1' for each resource
-- Reply one string for each resource: '0 ms lease' with the time left (-1 = no ttl), and '?' for a value that is no
--       lease | '2' no lease
--       error UNINIT if the node is not admitted under this run id.
-- Why atomic: the lease and its ttl are of one moment.
if redis.call('HGET', KEYS[1], 'run') ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local out = {}
for i = 2, #KEYS do
  local l = read_lease(KEYS[i])
  local reply = '2'
  if l then reply = '0 ' .. time_left(KEYS[i], l) .. ' ' .. (l == FOREIGN and '?' or redis.call('GET', KEYS[i])) end
  out[#out + 1] = reply
end
return out
