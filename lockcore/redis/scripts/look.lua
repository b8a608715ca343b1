-- LOOK: what stands on this node for a resource, whoever holds it. Changes nothing.
-- KEYS  fg:node, then for each resource: its lease key
-- ARGV  run id, then '1' for each resource
-- Reply one string a resource: '0 ms lease' with the ms until it runs out (-1 = never), '?' for a value that is no lease | '2' no lease
--       error UNINIT when the node is not admitted under this run id.
-- Why atomic: the lease and its remaining time are those of one moment.
if redis.call('HGET', KEYS[1], 'run') ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local out = {}
for i = 2, #KEYS do
  local l = read_lease(KEYS[i])
  out[#out + 1] = l and ('0 ' .. redis.call('PTTL', KEYS[i]) .. ' ' .. (l == ANOTHERS and '?' or redis.call('GET', KEYS[i]))) or '2'
end
return out
