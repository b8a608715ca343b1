-- CLOSE (docs/protocol.md, HOLDS): sets the CLOSE mark, so that the lease refuses HOLD, if the caller's hold is the only one; or removes that mark.
-- KEYS  fg:node, then for each lease: its lease keys
-- ARGV  run id, then for each lease: number of resources, nonce, id of the caller's hold, mark of this call, '1' = set the mark, '0' = remove it
-- Reply one string for each lease: '0 ids\ntombstones\nclosed' done | '7 ids\ntombstones\nclosed' other holds are left: no effect
--       | '2' not all of its keys are the caller's: no effect
--       error UNINIT if the node is not admitted under this run id.
-- Why atomic: no hold may be added between the test and the mark.
if redis.call('HGET', KEYS[1], 'run') ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, id, mark, close = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2], ARGV[a + 2] .. ARGV[a + 3], ARGV[a + 4] == '1'
  local is_owned, leases, others, holds = true, {}, false, nil
  for i = k, k + n - 1 do
    local l = read_lease(KEYS[i])
    if not l or l.nonce ~= nonce then
      is_owned = false
    else
      leases[i], holds = l, holds or format_holds(l)
      others = others or remove_id(l.ids, id) ~= ''
    end
  end
  if not is_owned then
    out[#out + 1] = '2'
  elseif close and others then
    out[#out + 1] = '7 ' .. holds
  else
    for i = k, k + n - 1 do
      local l = leases[i]
      if close then l.close_mark = mark elseif l.close_mark == mark then l.close_mark = '' end
      write_lease(KEYS[i], l)
    end
    out[#out + 1] = '0 ' .. format_holds(leases[k])
  end
  k, a = k + n, a + 5
end
return out
