#include <gateway/admin/check.hpp>

#include <gateway/app.hpp>
#include <gateway/config/file_limit.hpp>
#include <gateway/pg/connection/session.hpp>
#include <gateway/pg/schema/cluster.hpp>

#include <lockcore/probe.hpp>

#include <algorithm>
#include <iostream>

namespace fencegate::admin {
namespace {

/// Prints what was found and remembers whether all of it was good.
class findings {
  public:
    void add(bool good, const std::string& what, const std::string& detail) {
        std::cout << (good ? "ok    " : "FAULT ") << what << ": " << detail << "\n";
        all_good_ = all_good_ && good;
    }
    bool all_good() const { return all_good_; }

  private:
    bool all_good_ = true;
};

std::string joined(const std::vector<std::string>& names) {
    std::string text;
    for (const auto& name : names)
        text += (text.empty() ? "" : ", ") + name;
    return text;
}

/// Reads the cluster's row; the first gateway to join writes it, so that a check must not.
void check_cluster(pg::session& database, const config& cfg, findings& found) {
    const auto row = database.exec(
        "select array_to_string(node_names, ', '), quorum, max_ttl_ms, buckets, epoch from fencing.cluster", {});
    if (row.empty()) {
        found.add(true, "cluster", "no gateway has joined yet; the first one fixes the nodes and max_ttl_ms");
        return;
    }
    std::vector<std::string> names;
    for (const auto& node : cfg.locks.nodes)
        names.push_back(node.name);
    std::sort(names.begin(), names.end());
    struct line {
        std::string name, theirs, ours;
    };
    const std::vector<line> lines{
        {"redis.nodes", row[0][0].c_str(), joined(names)},
        {"quorum", row[0][1].c_str(), std::to_string(lockcore::majority_of(names.size()))},
        {"lease.max_ttl_ms", row[0][2].c_str(), std::to_string(cfg.locks.max_ttl.count())},
        {"buckets", row[0][3].c_str(), std::to_string(lockcore::buckets)},
    };
    bool agrees = true;
    for (const auto& each : lines) {
        if (each.theirs == each.ours) continue;
        agrees = false;
        found.add(false, "cluster",
                  each.name + " differs: the cluster has " + each.theirs + ", this configuration " + each.ours);
    }
    if (agrees) found.add(true, "cluster", "agrees with this configuration, epoch " + std::string(row[0][4].c_str()));
}

void check_guard(pg::session& database, findings& found) {
    const auto faults = database.exec("select fencing.guard_faults()", {});
    for (const auto& row : faults)
        found.add(false, "guard", row[0].c_str());
    if (faults.empty()) found.add(true, "guard", "every check is in place");
}

/// Asks the database to connect as the recorder does: the only way to know that it can.
void check_recorder(pg::session& database, findings& found) {
    const auto fault = database.exec("select fencing.recorder_fault()", {});
    if (fault[0][0].is_null())
        found.add(true, "recorder", "refusals of direct SQL get into the history");
    else
        found.add(false, "recorder", std::string("refusals of direct SQL are not recorded: ") + fault[0][0].c_str());
}

void check_postgres(const config& cfg, findings& found) {
    try {
        pg::session database(cfg.postgres);
        const auto server =
            database.exec("select current_setting('server_version'), current_database(), current_user::text", {});
        found.add(true, "postgres",
                  std::string("PostgreSQL ") + server[0][0].c_str() + ", database " + server[0][1].c_str() + " as " +
                      server[0][2].c_str());
        if (const auto schema = pg::check_schema(database); !schema) {
            found.add(false, "schema", schema.error().detail);
            return;
        }
        const auto version = database.exec("select fencing.schema_version()", {});
        found.add(true, "schema", std::string("version ") + version[0][0].c_str());
        check_cluster(database, cfg, found);
        check_guard(database, found);
        check_recorder(database, found);
    } catch (const pg::session_lost& e) {
        found.add(false, "postgres", e.what());
    } catch (const pg::statement_failed& e) {
        found.add(false, "postgres", e.what());
    }
}

}  // namespace

int check(const config& cfg) {
    findings found;
    const file_limit limit = raise_file_limit(cfg);
    found.add(limit.connections > 0, "connections", limit.describe(cfg));
    for (const auto& node : lockcore::probe_nodes(cfg.locks))
        found.add(node.ok, node.name, node.detail);
    check_postgres(cfg, found);
    return found.all_good() ? exit_ok : exit_unavailable;
}

}  // namespace fencegate::admin
