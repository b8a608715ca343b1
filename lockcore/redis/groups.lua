-- After lease.lua: reads a lease of several resources as one.
-- Returns the lease of an attempt under each of the n keys from KEYS[k] on, by the index of the key; whether it is
-- under all of them, and whether another lease is under one.
local function read_group(k, n, nonce)
  local leases, is_complete, has_others = {}, true, false
  for i = k, k + n - 1 do
    local l = read_lease(KEYS[i])
    if l and l.nonce == nonce then
      leases[i] = l
    else
      is_complete, has_others = false, has_others or l ~= nil
    end
  end
  return leases, is_complete, has_others
end
