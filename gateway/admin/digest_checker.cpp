#include <gateway/admin/digest_checker.hpp>

#include <gateway/config/secrets.hpp>
#include <gateway/pg/history/history_digest.hpp>
#include <gateway/runtime/text.hpp>

#include <boost/json.hpp>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <unordered_map>

namespace fencegate::admin {
namespace {

constexpr std::size_t digests_per_query = 1'000;
/// Digests that may be made between a failover and the row that records it.
constexpr std::size_t digests_until_change = 3;

std::vector<pkey_handle> read_keys(const std::vector<std::string>& files) {
    std::vector<pkey_handle> out;
    for (const std::string& file : files) {
        std::string fault;
        const auto pem = read_text_file(file, secret_max_bytes, fault);
        if (!pem) throw std::runtime_error(fault);
        auto key = read_public_key(*pem);
        if (!key || EVP_PKEY_get_id(key.get()) != EVP_PKEY_ED25519)
            throw std::runtime_error(file + " has no public key of Ed25519 in PEM");
        out.push_back(std::move(key));
    }
    return out;
}

/// That partitions of the history were dropped, by retention or by a command.
struct drop_event {
    std::int64_t id = 0;
    std::string week;  ///< Of a dropped table its last part.
    bool by_retention = false;
    std::string principal, at;
};

class digest_checker {
  public:
    digest_checker(pg::session& session, const digest_options& options)
        : session_(session), keys_(read_keys(options.public_keys)), file_(options.file) {}

    digest_result run() {
        read_file();
        read_database();
        read_events();
        const auto chain = follow_chain();
        report_unchained(chain);
        check_beginning(chain);
        check_ends(chain);
        follow_replacements(chain);
        for (const digest* each : chain)
            check_digest(*each);
        report_half_weeks();
        return std::move(result_);
    }

  private:
    struct digest {
        pg::digest_entry entry;
        std::string hash;        ///< SHA-256 of its text.
        pg::digest_salts salts;  ///< Empty: the database has not the digest.
        bool in_file = false;
    };

    void report(const digest* about, const std::string& reason) {
        const std::string name =
            about ? "digest " + std::to_string(about->entry.number) + " of " + about->entry.made_at + ": " : "";
        result_.findings.push_back({'f', about ? about->entry.history.after + 1 : 0, "", name + reason});
    }

    /// Adds a digest unless it is known. Out: null if it is not signed.
    digest* add(const pg::signed_digest& stored) {
        auto entry = pg::parse_digest(stored.entry);
        if (!entry || !pg::is_signed(keys_, stored.entry, stored.signature)) return nullptr;
        const std::string hash = sha256_hex(stored.entry);
        const auto [found, is_new] = digests_.try_emplace(hash);
        if (is_new) {
            found->second.entry = std::move(*entry);
            found->second.hash = hash;
        }
        return &found->second;
    }

    void read_file() {
        std::ifstream in(file_);
        if (!in) throw std::runtime_error(file_ + " can't be read");
        std::string line;
        for (std::int64_t number = 1; std::getline(in, line); ++number) {
            const auto stored = pg::parse_line(line);
            if (digest* added = stored ? add(*stored) : nullptr) {
                added->in_file = true;
                first_in_file_ = std::min(first_in_file_.value_or(added->entry.number), added->entry.number);
                last_in_file_ = std::max(last_in_file_, added->entry.number);
            } else {
                report(nullptr, "line " + std::to_string(number) + " of the file: signed by none of the public keys");
            }
        }
        if (in.bad()) throw std::runtime_error(file_ + " can't be read");
        if (!first_in_file_) report(nullptr, "the file has no digest that is signed by one of the public keys");
    }

    void read_database() {
        for (std::int64_t after = 0;; after += static_cast<std::int64_t>(digests_per_query)) {
            const auto page = pg::read_digests(session_, after, digests_per_query);
            std::int64_t number = after;
            for (const pg::signed_digest& stored : page) {
                ++number;
                if (digest* added = add(stored)) {
                    added->salts = stored.salts;
                    newest_ = added;
                } else {
                    report(nullptr,
                           "digest " + std::to_string(number) + " of the database: signed by none of the public keys");
                }
            }
            if (page.size() < digests_per_query) break;
        }
    }

    void read_events() {
        const auto rows = session_.exec(
            "select id, detail->>'action', coalesce(detail->>'week', right(detail->>'relation', 8)), principal, "
            "to_char(at at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') from fencing.history where event = "
            "'guard_changed' and detail->>'action' in ('history_rotated', 'history_dropped') order by id",
            {});
        for (const auto& row : rows)
            drops_.push_back({row[0].as<std::int64_t>(), row[2].c_str(),
                              std::string_view(row[1].c_str()) == "history_rotated", row[3].c_str(), row[4].c_str()});
        for (const auto& row :
             session_.exec("select id from fencing.history where event = 'storage_generation_changed' "
                           "and detail ? 'floor'",
                           {}))
            generation_changes_.push_back(row[0].as<std::int64_t>());
    }

    /// Returns the digests from the first to the newest one of the database, each named by the next one.
    std::vector<const digest*> follow_chain() {
        std::vector<const digest*> out;
        for (const digest* at = newest_; at != nullptr;) {
            out.push_back(at);
            if (at->entry.previous.empty()) break;
            const auto before = digests_.find(at->entry.previous);
            if (before == digests_.end()) report(at, "the digest before it is neither in the file nor in the database");
            at = before == digests_.end() ? nullptr : &before->second;
        }
        std::ranges::reverse(out);
        if (!out.empty()) result_.last_made_at = out.back()->entry.made_at;
        return out;
    }

    void report_unchained(const std::vector<const digest*>& chain) {
        // Where the ways of the digests and of the chain part: the index of the chain's first one that is not theirs.
        std::unordered_map<std::string, std::size_t> parts_at;
        for (std::size_t i = 0; i < chain.size(); ++i)
            parts_at[chain[i]->hash] = i + 1;
        std::vector<const digest*> left;
        for (const auto& [hash, each] : digests_)
            if (!parts_at.contains(hash)) left.push_back(&each);
        std::ranges::sort(left, {}, [](const digest* each) { return each->entry.number; });
        std::map<std::size_t, std::int64_t> ends;  // the last id of those that part there
        for (const digest* each : left) {
            const auto before = parts_at.find(each->entry.previous);
            const std::size_t at = before == parts_at.end() ? 0 : before->second;
            parts_at[each->hash] = at;
            ends[at] = std::max(ends[at], each->entry.history_end());
        }
        for (const digest* each : left) {
            const std::size_t at = parts_at[each->hash];
            if (is_failover(chain, at, ends[at]))
                ++result_.lost;
            else
                report(each,
                       "it is signed, and the newest digest of the database does not follow it: the digests were set "
                       "back, and rows with them");
        }
        for (const digest* each : chain) {
            const auto number = each->entry.number;
            if (!each->in_file && first_in_file_ && number > *first_in_file_ && number < last_in_file_)
                report(each, "it is not in the file, which has later ones");
        }
    }

    /// Returns whether a failover, which loses what PostgreSQL had not sent to its standby, has lost digests that end
    /// with an id and part from the chain before its digest of this index: the storage generation changed after them,
    /// in the next digests of the chain or since.
    bool is_failover(const std::vector<const digest*>& chain, std::size_t first, std::int64_t last_id) const {
        const std::size_t end = first + digests_until_change;
        return std::ranges::any_of(generation_changes_, [&](std::int64_t id) {
            return id > last_id && (end > chain.size() || id <= chain[end - 1]->entry.history_end());
        });
    }

    /// Reports rows with ids below those of the first digest.
    void check_beginning(const std::vector<const digest*>& chain) {
        if (chain.empty()) return;
        const auto& first = chain.front()->entry;
        for (const auto& [table, after] :
             {std::pair("history", first.history.after), std::pair("row_change", first.changes.after)}) {
            const auto found =
                session_.exec(std::string("select exists (select from fencing.") + table + " where id <= $1::bigint)",
                              {std::to_string(after)});
            if (found[0][0].as<bool>())
                report(chain.front(), std::string("there are rows of ") + table + " that no digest can have");
        }
    }

    /// Reports digests that leave ids out, or cover some again without replacing a digest.
    void check_ends(const std::vector<const digest*>& chain) {
        for (std::size_t i = 1; i < chain.size(); ++i) {
            const pg::digest_entry &before = chain[i - 1]->entry, &entry = chain[i]->entry;
            const auto history = entry.replaces ? entry.history_end() : entry.history.after;
            const auto changes = entry.replaces ? entry.changes_end() : entry.changes.after;
            if (history != before.history_end() || changes != before.changes_end())
                report(chain[i], "its ids do not follow those of the digest before it");
        }
    }

    /// Finds the last replacement of each digest, and reports those that are none.
    void follow_replacements(const std::vector<const digest*>& chain) {
        std::unordered_map<std::int64_t, const digest*> originals;  // by their number
        for (const digest* each : chain) {
            const auto& replaces = each->entry.replaces;
            if (!replaces) {
                originals[each->entry.number] = each;
                continue;
            }
            result_.erasures.push_back({each->entry.number, replaces->number, each->entry.made_at, replaces->pseudonym,
                                        replaces->principal, replaces->reason});
            const auto found = originals.find(replaces->number);
            if (found == originals.end()) {
                report(each, "it replaces digest " + std::to_string(replaces->number) + ", which is not before it");
                continue;
            }
            const pg::digest_entry &is = each->entry, &was = found->second->entry;
            if (is.history.after != was.history.after || is.history.to != was.history.to ||
                is.changes.after != was.changes.after || is.changes.to != was.changes.to)
                report(each, "it replaces digest " + std::to_string(was.number) + ", which has other ids");
            const digest*& last = replaced_by_[found->second];
            if (last) replaced_by_[last] = each;
            last = each;
        }
    }

    void check_digest(const digest& checked) {
        const bool is_original = !checked.entry.replaces;
        const bool is_replaced = replaced_by_.contains(&checked);
        if (checked.salts.fixed.empty())
            return report(&checked, "it is not in the database any more, so that its rows can't be compared");
        if (!is_replaced && checked.salts.erasable.empty())
            return report(&checked, "its erasable_salt is gone, and no digest replaces it");
        if (is_original) ++result_.digests;
        if (!is_original && is_replaced) return;
        check_range(checked, checked.entry.history, pg::digested_table::history, "history");
        check_range(checked, checked.entry.changes, pg::digested_table::changes, "row_change");
    }

    /// Compares all columns of rows, or of a digest that is replaced those from which no names can be erased.
    void check_range(const digest& checked, const pg::digest_range& range, pg::digested_table table,
                     const std::string& name) {
        if (range.to <= range.after) return;
        const bool is_original = !checked.entry.replaces;
        const bool is_replaced = replaced_by_.contains(&checked);
        const auto found = pg::hash_rows(session_, table, range.after, range.to, checked.salts);
        const std::string ids =
            "ids " + std::to_string(range.after + 1) + " to " + std::to_string(range.to) + " of " + name;
        for (const auto& [week, part] : range.parts) {
            const auto now = found.find(week);
            const drop_event* dropped = find_drop(week, checked.entry.history.to);
            if (now == found.end()) {
                if (!is_original) continue;  // the digest that it replaces has them too
                if (!dropped) {              // perhaps meanwhile
                    read_events();
                    dropped = find_drop(week, checked.entry.history.to);
                }
                if (dropped && dropped->by_retention) {
                    result_.rotated_rows += part.rows;
                    rotated_.try_emplace({name, week}, &checked);
                    continue;
                }
                report(&checked,
                       ids + ": " + std::to_string(part.rows) + " rows of the week " + week + " are gone" +
                           (dropped ? ": dropped by " + dropped->principal + " at " + dropped->at + ", not by retention"
                                    : ""));
                continue;
            }
            if (is_original) result_.rows += now->second.rows;
            if (dropped && dropped->by_retention) kept_weeks_.insert({name, week});
            if (now->second.rows != part.rows)
                report(&checked, ids + ": there were " + std::to_string(part.rows) + " rows of the week " + week +
                                     ", and there are " + std::to_string(now->second.rows));
            else if (now->second.sha256 != part.sha256 ||
                     (!is_replaced && now->second.erasable_sha256 != part.erasable_sha256 && !was_replaced(checked)))
                report(&checked, ids + ": rows of the week " + week + " were changed");
            else if (dropped && dropped->by_retention && dropped->week == week)
                report(&checked, ids + ": rows of the week " + week + " are there, which was dropped by row " +
                                     std::to_string(dropped->id));
        }
        for (const auto& [week, part] : found) {
            if (!range.parts.contains(week))
                report(&checked, ids + ": " + std::to_string(part.rows) + " rows of the week " + week + " were added");
        }
    }

    /// Ends the check if the digest was replaced since it was read: its rows are now compared with what they were.
    bool was_replaced(const digest& checked) {
        const auto found = session_.exec(
            "select exists (select from fencing.history_digest where number = $1 "
            "and erasable_salt <> $2)",
            {std::to_string(checked.entry.number), checked.salts.erasable});
        if (found[0][0].as<bool>()) throw std::runtime_error("names were erased during the check: run it again");
        return false;
    }

    /// Reports weeks of which retention, which drops whole ones, would have left rows.
    void report_half_weeks() {
        for (const auto& [where, checked] : rotated_)
            if (kept_weeks_.contains(where))
                report(checked, "rows of " + where.first + " of the week " + where.second +
                                    " are gone, and other rows of that week are there: retention drops all");
    }

    /// Returns what dropped the rows of a week with ids up to `id`. Retention drops the oldest week first, so the drop
    /// of a later one tells it too, where the row about the week itself has been dropped since.
    const drop_event* find_drop(const std::string& week, std::int64_t id) const {
        const drop_event* out = nullptr;
        for (const drop_event& drop : drops_) {
            if (drop.id <= id || week.empty()) continue;
            if (drop.by_retention && drop.week >= week && (!out || !out->by_retention || drop.week == week))
                out = &drop;
            else if (!out && drop.week == week)
                out = &drop;
        }
        return out;
    }

    pg::session& session_;
    std::vector<pkey_handle> keys_;
    std::string file_;
    std::unordered_map<std::string, digest> digests_;  ///< Those that are signed, by their hash.
    const digest* newest_ = nullptr;                   ///< Of the database.
    std::optional<std::int64_t> first_in_file_;        ///< Their numbers.
    std::int64_t last_in_file_ = 0;
    std::unordered_map<const digest*, const digest*> replaced_by_;  ///< Of an original its last replacement.
    std::vector<drop_event> drops_;
    using table_and_week = std::pair<std::string, std::string>;
    std::map<table_and_week, const digest*> rotated_;  ///< The first digest whose rows retention has dropped.
    std::set<table_and_week> kept_weeks_;              ///< With rows from before retention dropped the week.
    std::vector<std::int64_t> generation_changes_;     ///< The ids of their rows.
    digest_result result_;
};

}  // namespace

digest_result check_digests(pg::session& session, const digest_options& options) {
    return digest_checker(session, options).run();
}

int check_export(const std::string& file, const std::vector<std::string>& public_keys, bool json) {
    const auto keys = read_keys(public_keys);
    std::ifstream in(file, std::ios::binary);
    if (!in) throw std::runtime_error(file + " can't be read");
    pg::text_hash hash;
    std::string line, last;
    std::int64_t lines = 0;  // before `last`
    bool ended = false;      // by a line break
    for (bool first = true; std::getline(in, line); first = false) {
        ended = !in.eof();
        if (!first) {
            hash.add(last + "\n");
            ++lines;
        }
        last.swap(line);
    }
    if (in.bad()) throw std::runtime_error(file + " can't be read");
    const auto stored = ended ? pg::parse_line(last) : std::nullopt;
    const auto proof = stored ? pg::parse_proof(stored->entry) : std::nullopt;
    std::string fault;
    if (!proof || pg::line_of(*stored) != last)
        fault = "the last line is no proof: the file is not whole, or was exported without proof=true";
    else if (!pg::is_signed(keys, stored->entry, stored->signature))
        fault = "the last line is signed by none of the public keys";
    else if (proof->count != lines)
        fault = "it has " + std::to_string(lines) + " lines; " + std::to_string(proof->count) + " were exported";
    else if (proof->sha256 != hash.finish())
        fault = "a line was changed, or lines were exchanged";
    if (json) {
        boost::json::object out{{"verdict", fault.empty() ? "proved" : "broken"}};
        if (fault.empty())
            out["proof"] = boost::json::parse(stored->entry);
        else
            out["fault"] = fault;
        std::cout << runtime::prepare_for_stdout(boost::json::serialize(out)) << "\n";
    } else if (!fault.empty()) {
        std::cout << "BROKEN: " << fault << "\n";
    } else {
        std::cout << runtime::make_printable("Proved: " + proof->items + ", " + std::to_string(lines) + " lines, ids " +
                                             std::to_string(proof->first_id) + " to " + std::to_string(proof->last_id) +
                                             ", as " + proof->principal + " got them at " + proof->made_at + " for " +
                                             proof->query)
                  << "\n";
    }
    return fault.empty() ? 0 : 1;
}

}  // namespace fencegate::admin
