-- Code that runs where a protected or exposed table is written or read, and whose it is: another owner could run code
-- with the rights of the writing role.

create or replace function fencing.foreign_owner(object text, relation regclass) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select r.rolname::text
    from (select split_part(object, ' ', 1) as kind, substr(object, strpos(object, ' ') + 1) as identity offset 0) i
         cross join lateral
         (select case when i.kind in ('function', 'aggregate', 'procedure') then (select p.proowner from pg_proc p
               where p.oid = to_regprocedure(i.identity))
                      when i.kind = 'operator'
                        then (select o.oprowner from pg_operator o where o.oid = to_regoperator(i.identity))
                      when i.kind = 'type' then (select t.typowner from pg_type t where t.oid = to_regtype(i.identity))
                      when i.kind = 'relation'
                        then (select c.relowner from pg_class c where c.oid = to_regclass(i.identity))
                 end) as o (owner)
    join pg_roles r on r.oid = o.owner and not r.rolsuper
   where r.oid not in (select n.nspowner from pg_namespace n where n.nspname = 'fencing' union all select c.relowner
       from pg_class c where c.oid = relation);
$$;
comment on function fencing.foreign_owner(text, regclass) is
  'The owner of an object (an item of expression_objects, or of code_of_others()), unless that is the owner '
  'of the schema, the owner of the table or a superuser: such an owner could change the result of the expression, '
  'and run code with the rights of the writing role. Locks: none.';

create or replace function fencing.code_objects(relations oid[]) returns table (relation oid, object text)
language sql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
  with recursive dependents (relation, class, oid) as (
    select r.oid, 'pg_class'::regclass::oid, r.oid from unnest($1) as r (oid)  -- its columns and partition key
    union all select r.ev_class, 'pg_rewrite'::regclass, r.oid from pg_rewrite r where r.ev_class = any ($1)
    union all select k.conrelid, 'pg_constraint'::regclass, k.oid from pg_constraint k
      where k.conrelid = any ($1) and k.contype in ('c', 'x')
    union all select d.adrelid, 'pg_attrdef'::regclass, d.oid from pg_attrdef d where d.adrelid = any ($1)
    union all select i.indrelid, 'pg_class'::regclass, i.indexrelid from pg_index i where i.indrelid = any ($1)
    union all select p.polrelid, 'pg_policy'::regclass, p.oid from pg_policy p where p.polrelid = any ($1)
    union all select t.tgrelid, 'pg_trigger'::regclass, t.oid from pg_trigger t
      where t.tgrelid = any ($1) and not t.tgisinternal
    union all select e.stxrelid, 'pg_statistic_ext'::regclass, e.oid from pg_statistic_ext e where e.stxrelid = any ($1)
  ), used (relation, class, oid, subid) as (
    select d.relation, d.class, d.oid, 0 from dependents d
    union
    select u.relation, x.class, x.oid, x.subid
      from used u
           cross join lateral (select d.refclassid, d.refobjid, d.refobjsubid from pg_depend d
                                where d.classid = u.class and d.objid = u.oid and (u.subid = 0 or d.objsubid = u.subid)
                                  and d.refclassid in ('pg_proc'::regclass, 'pg_operator'::regclass,
                                      'pg_type'::regclass, 'pg_class'::regclass)
                               union all  -- a domain evaluates its constraints
                               select 'pg_constraint'::regclass, k.oid, 0 from pg_constraint k
                                 where u.class = 'pg_type'::regclass and k.contypid = u.oid
                               union all
                               select 'pg_class'::regclass, t.typrelid, 0 from pg_type t
                                 where u.class = 'pg_type'::regclass and t.oid = u.oid
                               union all  -- a function may read a view
                               select 'pg_rewrite'::regclass, w.oid, 0 from pg_rewrite w
                                 where u.class = 'pg_class'::regclass and w.ev_class = u.oid) x (class, oid, subid)
     where x.oid >= 16384  -- the server's own objects are below
  )
  select o.relation, i.type || ' ' || i.identity
    from (select distinct u.relation, u.class, u.oid from used u
        where u.class in ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass)) o
         cross join lateral pg_identify_object(o.class, o.oid, 0) i;
$$;
comment on function fencing.code_objects(oid[]) is
  'The functions, operators and types, except PostgreSQL''s own, whose code runs where one of these tables is written '
  'or views is read: those of the view''s query, or of the table''s constraints, defaults, partition key, '
  'indexes, extended statistics, policies and triggers, and those of its columns'' types and of functions as far '
  'as PostgreSQL records what they use. Each as kind and identity. Locks: none.';

create or replace function fencing.code_relations(relations oid[]) returns table (root oid, relation oid)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with recursive reached (root, oid) as (
    select c.oid, c.oid from pg_class c where c.oid = any ($1)
    union
    select r.root, c.oid
      from reached r
           cross join lateral (select p.relid from pg_partition_tree(r.oid) p
                               union all
                               select d.refobjid
                                 from (select 'pg_rewrite'::regclass, w.oid from pg_rewrite w where w.ev_class = r.oid
                                     union all select 'pg_policy'::regclass, p.oid from pg_policy p
                                     where p.polrelid = r.oid) q (class, oid)
                                      join pg_depend d on d.classid = q.class and d.objid = q.oid
                                        and d.refclassid = 'pg_class'::regclass) x (oid)
           join pg_class c on c.oid = x.oid and c.oid >= 16384 and c.relkind in ('r', 'p', 'v', 'm', 'f')
  )
  select * from reached;
$$;
comment on function fencing.code_relations(oid[]) is
  'These relations, and with each its partitions and the relations that its query, its rules and its policies name, '
  'also through other views: code of all of them may run where it is read or written. Locks: none.';

create or replace function fencing.code_of_others(relations oid[]) returns table (relation oid, object text, owner text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with reached as materialized (
    select * from fencing.code_relations($1)
  ), objects as (
    select r.root, o.object from fencing.code_objects(array(select distinct r.relation from reached r)) o
      join reached r on r.relation = o.relation
    union
    select r.root, 'relation ' || r.relation::regclass from reached r
  )
  select o.root, o.object, f.owner
    from objects o cross join lateral (select fencing.foreign_owner(o.object, o.root::regclass) as owner offset 0) f
    where f.owner is not null;
$$;
comment on function fencing.code_of_others(oid[]) is
  'Of the code_relations() of these relations, '
  'those and their code_objects() that belong to another role than the owners of the schema and of the relation, '
  'and superusers: that role could run code with the rights of the writing role. Locks: none.';

create or replace function fencing.require_owner(relation regclass) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  table_owner constant oid := (select c.relowner from pg_class c where c.oid = relation);
begin
  if not pg_has_role(table_owner, 'usage') then
    raise exception using errcode = '42501', message = format(
        '%s belongs to %s, and only its owner can have it protected or exposed', relation, table_owner::regrole),
      hint = format('Call as %1$s, which installed the schema, and let it own the table: grant %2$s to %1$s, '
          'or alter table ... owner to %1$s.',
                    (select n.nspowner::regrole from pg_namespace n where n.nspname = 'fencing'), table_owner::regrole);
  end if;
end
$$;
comment on function fencing.require_owner(regclass) is
  'Raises 42501 unless the current role has the rights of the relation''s owner. Locks: none.';

create or replace function fencing.require_own_code(relations oid[]) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  other record;
begin
  select * into other from fencing.code_of_others(relations) o order by o.object limit 1;
  if found then
    raise exception using errcode = '42501', message = format('%s belongs to %s, '
        'who could run code with the rights of the writing role', other.object, other.owner),
      hint = 'Give it to the owner of the table: alter ... owner to ...';
  end if;
end
$$;
comment on function fencing.require_own_code(oid[]) is
  'Raises 42501 if there are code_of_others() for these relations. Locks: none.';
