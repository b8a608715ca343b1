-- CLOSE (docs/protocol.md, HOLDS): from now on the lease refuses HOLD, if the caller's hold is the only one; or lifts the caller's mark again.
-- KEYS  fg:node, then for each lease: its lease keys
-- ARGV  run id, then for each lease: resources, nonce, id of the caller's hold, mark of this attempt, '1' = close, '0' = lift this mark
-- Reply one string a lease: '0 ids\ntombstones\nclosed' done | '7 ids\ntombstones\nclosed' other holds are left: nothing was done | '2' not all of its keys are the caller's
--       error UNINIT when the node is not admitted under this run id.
-- Why atomic: no hold may come between the look and the mark.
if redis.call('HGET', KEYS[1], 'run') ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, id, mark, close = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2], ARGV[a + 2] .. ARGV[a + 3], ARGV[a + 4] == '1'
  local mine, leases, others, told = true, {}, false, nil
  for i = k, k + n - 1 do
    local l = read_lease(KEYS[i])
    if not l or l.by ~= nonce then
      mine = false
    else
      leases[i], told = l, told or holds_of(l)
      others = others or without_id(l.ids, id) ~= ''
    end
  end
  if not mine then
    out[#out + 1] = '2'
  elseif close and others then
    out[#out + 1] = '7 ' .. told
  else
    for i = k, k + n - 1 do
      local l = leases[i]
      if close then l.closed = mark elseif l.closed == mark then l.closed = '' end
      write_lease(KEYS[i], l)
    end
    out[#out + 1] = '0 ' .. holds_of(leases[k])
  end
  k, a = k + n, a + 5
end
return out
