#include <gateway/admin/commands.hpp>

#include <gateway/config/secrets.hpp>
#include <gateway/domain/exit_code.hpp>
#include <gateway/pg/connection/session.hpp>
#include <gateway/pg/history/history_digest.hpp>
#include <gateway/pg/schema/cluster.hpp>
#include <gateway/runtime/random.hpp>
#include <gateway/runtime/rfc3339.hpp>
#include <gateway/runtime/text.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <unordered_map>

namespace fencegate::admin {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

/// Of a statement over all rows.
constexpr auto statement_longest = 1h;
/// For gateways that make digests, which takes less than a second, and for others that have locked a row.
constexpr auto lock_wait_longest = 30s;
constexpr auto lock_retry_interval = 50ms;
constexpr std::string_view lock_not_available = "55P03";
constexpr std::size_t digests_per_page = 100;

/// The digests do not let anything be erased; the text says why.
class not_erasable : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct stored_digest {
    pg::digest_entry entry;
    pg::digest_salts salts;
};

class erasure {
  public:
    erasure(pg::session& session, const erase_options& options) : session_(session), reason_(options.reason) {
        if (!options.audit.digest_key.empty()) keys_.push_back(read_private_key(options.audit.digest_key));
        for (const std::string& pem : options.audit.digest_public_keys)
            keys_.push_back(read_public_key(pem));
        pg::array_text names;
        for (const std::string& name : options.names)
            names.add(name);
        names_ = names.take();
    }

    void run() {
        read_state();
        std::cout << "Erasing as " << pseudonym_ << ".\n" << std::flush;
        do
            erase_digests();
        while (!erase_rows_without_digest());
        while (const auto changed = change("select fencing.erase_other_names($1::text[], $2::text)"))
            other_rows_ += changed;
        // Old versions of rows, and samples of values in the statistics.
        session_.command(
            "vacuum (analyze) fencing.history, fencing.row_change, fencing.history_digest, fencing.kept_outcome, "
            "fencing.guard");
        std::cout << "Replaced in " << rows_ << " rows of the history and of changes, and in " << other_rows_
                  << " of other tables; " << replaced_ << " digests were replaced.\n";
        report_rest();
    }

  private:
    using row_range = std::pair<std::int64_t, std::int64_t>;  ///< Ids above the first one, up to the second one.

    void read_state() {
        if (!session_.exec("select pg_try_advisory_lock(hashtextextended('fencegate erase', 0))", {})[0][0].as<bool>())
            throw not_erasable("another fencegate erase runs in this database");
        if (keys_.empty() && session_.exec("select exists (select from fencing.history_digest)", {})[0][0].as<bool>())
            throw not_erasable("there are digests: --config with audit.digest_key_file is needed");
        session_.exec("select fencing.refuse_under_hold()", {});
        principal_ = session_.exec("select session_user", {})[0][0].c_str();
        const pg::digest_tail tail = pg::read_digest_tail(session_);
        last_history_ = tail.history.last_id;
        last_changes_ = tail.changes.last_id;
        for (const auto& row : session_.exec("select entry, signature, salt, erasable_salt from fencing.history_digest "
                                             "where replaces is not null order by number",
                                             {})) {
            auto entry = pg::parse_digest(row[0].c_str());
            if (entry && entry->replaces && pg::is_signed(keys_, row[0].c_str(), row[1].c_str())) {
                const auto number = entry->replaces->number;
                replacements_[number] = {std::move(*entry), {row[2].c_str(), row[3].c_str()}};
            }
        }
    }

    /// Runs a statement with names and pseudonym. Out: its number.
    std::int64_t change(const std::string& sql) {
        return session_.exec(sql, {names_, pseudonym_})[0][0].as<std::int64_t>();
    }

    bool has_names(row_range history, row_range changes) {
        const auto found = session_.exec(
            "select cardinality(history_ids) + cardinality(change_ids) from "
            "fencing.find_names($1::text[], $2::bigint, $3::bigint, $4::bigint, $5::bigint)",
            {names_, std::to_string(history.first), std::to_string(history.second), std::to_string(changes.first),
             std::to_string(changes.second)});
        return found[0][0].as<std::int64_t>() > 0;
    }

    std::int64_t erase_names(row_range history, row_range changes) {
        return session_
            .exec(
                "select fencing.erase_names($1::text[], $2::text, $3::text, $4::bigint, $5::bigint, $6::bigint, "
                "$7::bigint)",
                {names_, pseudonym_, reason_, std::to_string(history.first), std::to_string(history.second),
                 std::to_string(changes.first), std::to_string(changes.second)})[0][0]
            .as<std::int64_t>();
    }

    /// Begins a transaction beside which no digest is made. Out: the number of the next digest.
    std::int64_t begin() {
        for (const auto until = steady_clock::now() + lock_wait_longest;;) {
            session_.command("begin");
            try {
                // Before partitions of them are read, as every writer does.
                session_.exec("lock table fencing.history, fencing.row_change in row exclusive mode", {});
                const auto number = session_.exec("select fencing.begin_digest()", {})[0][0].as<std::int64_t>();
                last_digest_ = pg::find_last_digest(session_, keys_);
                // A replacement would not name them, so that they would be no part of the chain any more.
                if (last_digest_.unsigned_entries > 0)
                    throw not_erasable("the last digest is signed by none of the keys of --config");
                return number;
            } catch (const pg::statement_failed& e) {
                session_.command("rollback");
                if (e.error.sqlstate != lock_not_available || steady_clock::now() >= until) throw;
            }
            std::this_thread::sleep_for(lock_retry_interval);
        }
    }

    /// Erases the names in the rows of the digests that were not looked at yet.
    void erase_digests() {
        for (;;) {
            const auto page = pg::read_digests(session_, last_number_, digests_per_page);
            for (const pg::signed_digest& stored : page) {
                ++last_number_;
                auto entry = pg::parse_digest(stored.entry);
                // Not a digest, unless a later one names it.
                if (!entry || !pg::is_signed(keys_, stored.entry, stored.signature)) continue;
                if (entry->previous != last_hash_)
                    throw not_erasable("the digest before digest " + std::to_string(entry->number) +
                                       " is signed by none of the keys of --config");
                last_hash_ = sha256_hex(stored.entry);
                if (entry->replaces) continue;
                if (has_names({entry->history.after, entry->history.to}, {entry->changes.after, entry->changes.to}))
                    erase_digest({std::move(*entry), stored.salts});
            }
            if (page.size() < digests_per_page) return;
        }
    }

    void erase_digest(const stored_digest& original) {
        const pg::digest_entry& entry = original.entry;
        begin();
        const auto replacement = replacements_.find(entry.number);
        const stored_digest& last = replacement == replacements_.end() ? original : replacement->second;
        const pg::digest_salts salts{original.salts.fixed, last.salts.erasable};
        if (!has_rows(pg::digested_table::history, entry.history, last.entry.history, salts) ||
            !has_rows(pg::digested_table::changes, entry.changes, last.entry.changes, salts))
            throw not_erasable("the rows of digest " + std::to_string(entry.number) +
                               " are not those that it has, so that they stay as they are: see `fencegate verify "
                               "--digests`");
        rows_ += erase_names({entry.history.after, entry.history.to}, {entry.changes.after, entry.changes.to});
        pg::append_replacement(session_,
                               {.keys = keys_,
                                .gateway = "fencegate erase",
                                .made_at = runtime::to_rfc3339(std::chrono::system_clock::now()),
                                .salts = {runtime::random_hex128(), runtime::random_hex128()}},
                               entry, {entry.number, pseudonym_, reason_, principal_});
        session_.command("commit");
        ++replaced_;
    }

    /// Returns whether the rows are those of a digest, but for whole weeks that are gone.
    bool has_rows(pg::digested_table table, const pg::digest_range& original, const pg::digest_range& last,
                  const pg::digest_salts& salts) {
        const auto found = pg::hash_rows(session_, table, original.after, original.to, salts);
        return std::ranges::all_of(found, [&](const auto& week) {
            const auto fixed = original.parts.find(week.first), erasable = last.parts.find(week.first);
            return fixed != original.parts.end() && erasable != last.parts.end() &&
                   week.second.rows == fixed->second.rows && week.second.sha256 == fixed->second.sha256 &&
                   week.second.erasable_sha256 == erasable->second.erasable_sha256;
        });
    }

    /// Erases the names in rows that no digest has, part by part. Out: false if gateways made digests meanwhile.
    bool erase_rows_without_digest() {
        std::int64_t history = 0, changes = 0;
        do {
            if (begin() != last_number_ + 1) {
                session_.command("rollback");
                return false;
            }
            if (const auto& last = last_digest_.entry) {
                history = std::max(history, last->history_end());
                changes = std::max(changes, last->changes_end());
            }
            const auto history_to = std::min(history + pg::digest_ids_max, std::max(history, last_history_));
            const auto changes_to = std::min(changes + pg::digest_ids_max, std::max(changes, last_changes_));
            rows_ += erase_names({history, history_to}, {changes, changes_to});
            session_.command("commit");
            history = history_to;
            changes = changes_to;
        } while (history < last_history_ || changes < last_changes_);
        return true;
    }

    /// Says where names are still: in a longer text, a resource, or what happened; or another session uses the row.
    void report_rest() {
        const std::string has_name =
            " where exists (select from unnest($1::text[]) n cross join lateral (values (n), "
            "(substr(to_json(n)::text, 2, length(to_json(n)::text) - 2))) t (text) where strpos(concat_ws(' ', ";
        for (const auto& [table, first, columns] :
             {std::tuple("history", "min(id)", "resource, owner, principal, detail"),
              std::tuple("row_change", "min(id)", "resource, row_key, old, new, principal, application"),
              std::tuple("guard", "min(resource)", "resource, entered_by"),
              std::tuple("kept_outcome", "min(key)", "key, outcome"),
              std::tuple("known_fault", "min(id)", "fault, principal")}) {
            const auto found = session_.exec(std::string("select count(*), ") + first + " from fencing." + table +
                                                 has_name + columns + "), t.text) > 0)",
                                             {names_});
            if (const auto count = found[0][0].as<std::int64_t>(); count > 0)
                std::cout << count << " rows of " << table
                          << " still have one of the names, in a longer text, a resource, a key or what happened, or "
                             "were in use: the first is "
                          << runtime::make_printable(found[0][1].c_str()) << ".\n";
        }
        const auto late = session_.exec(
            "select cardinality(history_ids) + cardinality(change_ids) from fencing.find_names($1::text[], 0, "
            "9223372036854775807, 0, 9223372036854775807)",
            {names_})[0][0];
        if (late.as<std::int64_t>() > 0)
            std::cout << late.as<std::int64_t>()
                      << " rows came meanwhile: run it again when their leases have ended.\n";
        const auto kept = session_.exec(
            "select count(*), to_char(max(expires_at) at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') "
            "from fencing.kept_outcome where principal = any ($1::text[])",
            {names_});
        if (const auto count = kept[0][0].as<std::int64_t>(); count > 0)
            std::cout << count << " kept outcomes have one of the names as their principal until " << kept[0][1].c_str()
                      << ".\n";
    }

    pg::session& session_;
    std::string reason_, names_, principal_;
    const std::string pseudonym_ = "erased-" + runtime::random_hex128();
    std::vector<pkey_handle> keys_;                                 ///< The first one signs.
    std::unordered_map<std::int64_t, stored_digest> replacements_;  ///< Before this run, by the number of the original.
    std::int64_t last_history_ = 0, last_changes_ = 0;              ///< Later rows are not looked at.
    pg::last_digest last_digest_;                                   ///< When the transaction began.
    std::int64_t last_number_ = 0;                                  ///< Of the digests that were looked at.
    std::string last_hash_;                                         ///< Of the last of them.
    std::int64_t rows_ = 0, other_rows_ = 0, replaced_ = 0;
};

}  // namespace

int erase(const erase_options& options) {
    spdlog::set_level(spdlog::level::warn);
    const auto fail = [](const std::string& reason, int code) {
        runtime::print_error("erase", reason);
        return code;
    };
    postgres_config settings;
    settings.conninfo = options.conninfo;
    settings.statement_timeout = statement_longest;
    settings.lock_timeout = lock_wait_longest;
    try {
        pg::session session(settings);
        session.configure(settings);
        if (const auto direct = pg::check_direct(session); !direct)
            return fail(direct.error().detail, exit_unavailable);
        erasure(session, options).run();
        return exit_ok;
    } catch (const pg::session_lost& e) {
        return fail(e.what(), exit_unavailable);
    } catch (const pg::statement_failed& e) {
        return fail(e.what() + std::string(e.error.sqlstate == "42501"
                                               ? "; give --conninfo of the role that owns the schema fencing"
                                               : ""),
                    exit_failed);
    } catch (const not_erasable& e) {
        return fail(e.what(), exit_failed);
    }
}

}  // namespace fencegate::admin
