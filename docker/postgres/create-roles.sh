#!/usr/bin/env bash
# Runs once, in the new database cluster of postgres-1 (/docker-entrypoint-initdb.d): creates the roles of the gateways
# and of the standby. From the next start of the server on, a commit waits until the standby has it.
set -euo pipefail
psql -X -q -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
    -v gateway_password="$GATEWAY_PASSWORD" -v replication_password="$REPLICATION_PASSWORD" <<'SQL'
create role fencing_gateway nologin;
create role fencegate login password :'gateway_password' in role fencing_gateway;
create role standby login replication password :'replication_password';
select pg_create_physical_replication_slot('postgres_2');
alter system set synchronous_standby_names = 'postgres_2';
SQL
echo 'host replication standby all scram-sha-256' >>"$PGDATA/pg_hba.conf"
