-- LIST: returns the next part of the names of all resources that have a lease on this node (SCAN). Writes nothing.
-- KEYS  fg:node
-- ARGV  run id, then for each part: cursor ('0' = from the start), pattern of the lease keys
-- Reply one string for each part: '0 cursor\tname\tname …'; after the last part the cursor is '0'. A name may appear
--       twice. '\1name': its key has no ttl. A resource that leases share has one name, and it may have
--       one for a moment after they ended.
--       error UNINIT if the node is not admitted under this run id.
-- Why a script: it is sent, timed out and tested for the run id in the same way as the other commands.
if redis.call('HGET', KEYS[1], 'run') ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local out = {}
for a = 2, #ARGV, 2 do
  local part = redis.call('SCAN', ARGV[a], 'MATCH', ARGV[a + 1], 'COUNT', 500)
  local names = {}
  for _, key in ipairs(part[2]) do
    -- Holders of shared leases and wait marks have a tab.
    if not string.find(key, '\t', 1, true) then
      names[#names + 1] = (redis.call('PTTL', key) == -1 and '\1' or '') .. string.sub(key, 10)
    end
  end
  out[#out + 1] = '0 ' .. part[1] .. '\t' .. table.concat(names, '\t')
end
return out
