-- Every privilege on the schema that a role other than its owner has; partitions of the history have none of their own.
\pset format unaligned
select a.grantee::regrole::text as role, 'schema' as what, n.nspname::text as object,
  string_agg(a.privilege_type, ', ' order by a.privilege_type) as may
  from pg_namespace n, aclexplode(n.nspacl) a where n.nspname = 'fencing' and a.grantee <> n.nspowner group by 1, 2, 3
union all
select a.grantee::regrole::text, 'relation', c.relname, string_agg(a.privilege_type, ', ' order by a.privilege_type)
  from pg_class c, aclexplode(c.relacl) a where c.relnamespace = 'fencing'::regnamespace and a.grantee <> c.relowner
  group by 1, 2, 3
union all
select a.grantee::regrole::text, 'column', c.relname || '.' || t.attname,
  string_agg(a.privilege_type, ', ' order by a.privilege_type)
  from pg_class c join pg_attribute t on t.attrelid = c.oid, aclexplode(t.attacl) a
  where c.relnamespace = 'fencing'::regnamespace and a.grantee <> c.relowner group by 1, 2, 3
union all
select a.grantee::regrole::text, 'type', t.typname, string_agg(a.privilege_type, ', ' order by a.privilege_type)
  from pg_type t, aclexplode(t.typacl) a where t.typnamespace = 'fencing'::regnamespace and a.grantee <> t.typowner
  group by 1, 2, 3
union all
select a.grantee::regrole::text, 'function', p.oid::regprocedure::text,
  string_agg(a.privilege_type, ', ' order by a.privilege_type)
  from pg_proc p, aclexplode(p.proacl) a where p.pronamespace = 'fencing'::regnamespace and a.grantee <> p.proowner
  group by 1, 2, 3
 order by 1, 2, 3;
-- none of them with grant option
select count(*) from pg_class c, aclexplode(c.relacl) a where c.relnamespace = 'fencing'::regnamespace
  and a.grantee <> c.relowner and a.is_grantable;
select count(*) from pg_proc p, aclexplode(p.proacl) a where p.pronamespace = 'fencing'::regnamespace
  and a.grantee <> p.proowner and a.is_grantable;
-- Default privileges that would grant access to objects created later.
select count(*) from pg_default_acl;
