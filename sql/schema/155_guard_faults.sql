-- What would let a change past the guard.

create or replace function fencing.guard_faults() returns setof text
language sql stable security definer
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off  -- names are stored as text and compared
set jit = off  -- the planner expects a thousand rows of each function, and compiling takes seconds
as $$
  with roots as materialized (
    select p.relation::oid as oid from fencing.protected p union select e.relation from fencing.exposed e
      where e.relation is not null
  ), changed as materialized (
    select c.oid from fencing.changed_relations(array(select oid from roots)) c (oid)
  ), linked as materialized (  -- by foreign keys, in both directions
    select k.conname, k.confdeltype not in ('a', 'r') or k.confupdtype not in ('a', 'r') as acts,
      p.oid::regclass as relation, f.oid::regclass as other,
           f.relowner <> p.relowner
             and fencing.foreign_owner('relation ' || f.oid::regclass, p.oid::regclass) is not null as is_foreign
      from pg_constraint k join pg_class p on p.oid in (k.confrelid, k.conrelid)
           join pg_class f on f.oid = case p.oid when k.confrelid then k.conrelid else k.confrelid end
     where k.contype = 'f' and p.oid in (select oid from changed)
  ), expected as materialized (
    select * from fencing.expected_privileges()
  ), granted as materialized (
    select * from fencing.granted_privileges()
  )
  select f.fault from fencing.table_faults() f
  union
  select s.fault from fencing.server_fault(current_setting('server_version_num')::integer) s (fault)
    where s.fault is not null
  union
  select format('%s: its resource expression uses %s, which belongs to %s, who could run code '
      'with the rights of the writing role', p.relation, o.object, fencing.foreign_owner(o.object, p.relation))
    from fencing.protected p join pg_class c on c.oid = p.relation cross join unnest(p.expression_objects) as o (object)
   where fencing.foreign_owner(o.object, p.relation) is not null
  union
  select format('%s: its resource expression uses the virtual column %s, whose value triggers do not have; '
      'protect() it by another expression', p.relation, a.attname)
    from fencing.protected p join pg_attribute a on a.attrelid = p.relation and a.attgenerated = 'v'
   where p.row_expression ~ ('fencing_row[.]'
       || regexp_replace(quote_ident(a.attname), '([^[:alnum:]_])', E'\\\\\\1', 'g') || '(?![[:alnum:]_])')
  union
  select format('%s: %s belongs to %s, who could run code with the rights of the writing role', o.relation::regclass,
      o.object, o.owner)
    from fencing.code_of_others(array(select oid from changed union select other from linked)) o
  union
  select format('%s %s: %s has the privilege %s, which is for nobody but the owner; fencegate migrate takes it', g.kind,
      g.object, g.role, g.privilege)
    from (select * from granted except select * from expected) g
  union
  select format('%s %s: %s lacks the privilege %s; fencegate migrate grants it', g.kind, g.object, g.role, g.privilege)
    from (select * from expected except select * from granted) g
  union
  select format(case when i.kind = 'function'
                       then 'the %s %s is not the one that this version installs; fencegate migrate puts it back'
                     when to_regclass(i.name) is null
                       then 'the %s %s is missing; fencegate migrate makes it anew, without the rows that it had'
                     else 'the %s %s is not the one that this version installs' end, i.kind, i.name)
    from (select * from fencing.installed_object except select * from fencing.object_digests()) i
  union
  select format('%s %s belongs to %s, not to the owner of the schema', o.kind, o.name, o.owner::regrole)
    from (select 'table' as kind, c.oid::regclass::text as name, c.relowner as owner
            from pg_class c
                 join pg_namespace n on n.oid = c.relnamespace and n.nspname in ('fencing', 'fencing_event_triggers')
          union all select 'function', f.oid::regprocedure::text, f.proowner from pg_proc f
            where f.pronamespace = 'fencing'::regnamespace
          union all select 'schema', n.nspname::text, n.nspowner
                      from pg_namespace n where n.nspname = 'fencing_event_triggers'
          union all select 'function', f.oid::regprocedure::text, f.proowner
                      from pg_proc f join pg_namespace n on n.oid = f.pronamespace
                        and n.nspname = 'fencing_event_triggers'
          union all select 'type', t.oid::regtype::text, t.typowner from pg_type t
            where t.typnamespace = 'fencing'::regnamespace and t.typtype = 'd') o
   where o.owner <> quote_ident(current_user)::regrole
  union
  select format('the event trigger %s is missing or not always on, or not that of this version; '
      'fencegate migrate puts it back', x.name)
    from fencing.wrong_event_triggers() x
   where exists (select from pg_roles r where r.rolname = current_user and r.rolsuper)
  union
  select format('%s: %s has the privilege %s, and could run code with the rights of the writing role; '
      'protect() and expose_table() take it', r.target, r.grantee, r.privilege)
    from fencing.code_rights(array(select oid from changed)) r
  union
  select format('%s: relation %s belongs to %s, who could run code with the rights of the writing role',
      i.inhparent::regclass, i.inhrelid::regclass, f.owner)
    from pg_inherits i cross join lateral (select fencing.foreign_owner('relation ' || i.inhrelid::regclass,
          i.inhparent::regclass) as owner offset 0) f
   where i.inhparent in (select oid from changed) and f.owner is not null
  union
  select format(case when l.acts then '%s: %s belongs to another role, '
      'whose triggers run with the rights of the role that changes a key: its constraint %s has an action'
                     else '%s: %s belongs to another role, whose code could run with the rights of the role '
                       'that changes a row: the constraint %s links them' end, l.relation, l.other, l.conname)
    from linked l where l.is_foreign
  order by 1;
$$;
comment on function fencing.guard_faults() is
  'What would let a change past the guard although protect() was called: checks that are missing, replaced '
  'or not always enabled (as after pg_restore --data-only --disable-triggers), TRUNCATE of partitions attached since '
  'that is not refused yet, new tables of the same name, parents and children that are not checked, expressions '
  'that use objects of other owners, functions and tables of this schema that were replaced, changed or dropped, '
  'every privilege on this schema that is not expected, and roles other than the owner that can make triggers run. '
  'No row where there is no fault. `fencegate check` and running gateways call it. Locks: none.';
