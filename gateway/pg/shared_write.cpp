#include <gateway/pg/commit_resolver.hpp>
#include <gateway/pg/guard_call.hpp>
#include <gateway/pg/kept_outcome.hpp>
#include <gateway/pg/shared_write.hpp>
#include <gateway/pg/sqlstate_map.hpp>
#include <gateway/pg/text_receiver.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace fencegate::pg {
namespace {

const std::string begin_sql = "begin";
const std::string rollback_sql = "rollback";
const std::string patience_sql =
    "select set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true)";
const std::string patience_later_sql = patience_sql + ", set_config('synchronous_commit', 'off', true)";
const compat::parameters no_parameters;

bool is_true(const char* text) {
    return text[0] == 't';
}

bool waits(const std::string& sqlstate) {
    return sqlstate == "55P03" || sqlstate == "57014" || sqlstate == "40P01";
}

/// The writes of one transaction, as long as it takes to get one through.
class shared_run {
  public:
    shared_run(session_slot& slot, std::vector<shared_write>& writes, deadline until, const shared_manner& how)
        : slot_(slot), until_(until), how_(how) {
        for (auto& write : writes) {
            auto& one = active_.emplace_back();
            one.write = &write;
            one.turn = {write.request->write_id};
        }
    }

    void perform() {
        for (bool retried = false; !active_.empty();) {
            try {
                if (!try_once()) continue;
                if (!keep(slot_.get())) return;
            } catch (const session_lost& lost) {
                // COMMIT was not sent: once more on a new session is safe.
                if (!slot_.was_cut() && !std::exchange(retried, true) && reconnect()) continue;
                answer_all(unavailable_because(slot_.connected() ? lost.cause : slot_.cause()));
                return;
            }
            commit();
            return;
        }
        if (open_) roll_back();
    }

  private:
    struct active_write {
        shared_write* write = nullptr;
        compat::parameters turn;
        compat::parameters begin;              ///< Empty until needed.
        std::vector<std::string> names;        ///< Of its operations' statements in this session.
        std::vector<text_receiver> receivers;  ///< One an operation.
        // Where its part of the round trip is:
        std::size_t begins_at = 0;  ///< Its turn, or its begin_write; its operations follow.
        std::size_t guards_at = 0;  ///< The call that entered its resources,
        int guards_row = -1;        ///< and the row there that is its own; -1: all.
        int group = -1;             ///< In groups_, where its update is part of one statement,
        std::size_t place = 0;      ///< at this place.
        int claims_row = -1;        ///< Of the call that took the keys; -1: it has none.

        std::size_t ends_at() const { return begins_at + 1 + names.size(); }
        const std::string& resource() const { return write->request->resources.front().str(); }
    };

    struct update_group {
        std::string shape;  ///< The statement that each member would have run.
        std::string name;
        compat::parameters turn;
        compat::parameters values;
        compat::parameters recheck;
        std::vector<std::size_t> members;  ///< In active_.
        std::size_t at = 0;                ///< Its turn; the update and the recheck follow.
        std::optional<group_answer> answer;
    };

    bool reconnect() {
        open_ = false;
        for (auto& one : active_)
            one.names.clear();
        try {
            slot_.connect();
            return true;
        } catch (const session_lost&) {
            return false;
        }
    }

    void roll_back() {
        try {
            slot_.get().command("rollback");
        } catch (const std::exception&) {
            slot_.drop();
        }
    }

    /// True: all that are active are done and wait for COMMIT. False: some have left, or all.
    bool try_once() {
        auto& via = slot_.get();
        prepare(via);
        if (active_.empty()) return false;
        const auto calls = gather(via);
        open_ = true;
        return judge(via.run(calls));
    }

    /// A statement that can't be prepared takes its write out.
    void prepare(session& via) {
        std::erase_if(active_, [&](active_write& one) {
            try {
                for (auto i = one.names.size(); i < one.write->plan.operations.size(); ++i)
                    one.names.push_back(via.prepare(one.write->plan.operations[i].sql.sql));
                return false;
            } catch (const statement_failed&) {
                return true;
            }
        });
    }

    std::vector<prepared_call> gather(session& via) {
        std::vector<prepared_call> calls;
        if (open_) calls.push_back({via.prepare(rollback_sql), &no_parameters});
        calls.push_back({via.prepare(begin_sql), &no_parameters});
        const auto limit = std::min(patience_, slot_.settings().statement_timeout).count();
        const auto lock_limit = std::min(patience_, slot_.settings().lock_timeout).count();
        timeouts_ = {std::to_string(limit), std::to_string(lock_limit)};
        calls.push_back({via.prepare(how_.when == durability::later ? patience_later_sql : patience_sql), &timeouts_});
        claim_keys(via, calls);
        opening_ = calls.size();
        sets_.clear();
        groups_.clear();
        for (auto& one : active_)
            one.guards_row = one.group = -1;
        for (std::size_t i = 0; i < active_.size();) {
            const auto end = std::max(end_of_set(i), i + 1);
            const auto first_group = groups_.size();
            if (end - i > 1) {
                form_groups(via, i, end);
                enter_together(via, calls, i, end);
            }
            for (auto at = first_group; at < groups_.size(); ++at)
                add_group(via, calls, groups_[at]);
            for (; i < end; ++i) {
                if (active_[i].group < 0) add(via, calls, active_[i]);
            }
        }
        closing_ = calls.size();
        seal(via, calls);
        return calls;
    }

    void claim_keys(session& via, std::vector<prepared_call>& calls) {
        std::vector<const write_request*> requests;
        for (auto& one : active_) {
            if (!one.write->request->repeatable) continue;
            one.claims_row = static_cast<int>(requests.size());
            requests.push_back(one.write->request);
        }
        if (requests.empty()) return;
        claims_at_ = calls.size();
        claims_ = claim_keys_parameters(requests);
        calls.push_back({via.prepare(claim_keys_sql()), &claims_});
    }

    void seal(session& via, std::vector<prepared_call>& calls) {
        std::vector<const write_request*> requests;
        for (const auto& one : active_) {
            if (one.write->request->seal) requests.push_back(one.write->request);
        }
        if (requests.empty()) return;
        seals_ = seal_parameters(requests);
        calls.push_back({via.prepare(seal_sql()), &seals_});
    }

    /// The writes from `begin` on whose resources can be entered by one call: one resource each, none twice.
    std::size_t end_of_set(std::size_t begin) const {
        auto end = begin;
        while (sets_allowed_ && end < active_.size() && active_[end].write->request->resources.size() == 1 &&
               (end == begin || active_[end].resource() != active_[end - 1].resource())) {
            ++end;
        }
        return end;
    }

    /// Finds the writes of a set whose update one statement can do for all.
    void form_groups(session& via, std::size_t begin, std::size_t end) {
        std::map<std::string_view, std::vector<std::size_t>> by_shape;
        for (auto i = begin; groups_allowed_ && i < end; ++i) {
            const auto& write = *active_[i].write;
            const bool plain = write.plan.operations.size() == 1 && !write.request->return_rows &&
                               std::holds_alternative<update_operation>(write.request->operations.front());
            if (plain) by_shape[write.plan.operations.front().sql.sql].push_back(i);
        }
        for (const auto& [shape, members] : by_shape) {
            if (members.size() >= group_min) form_group(via, std::string(shape), members);
        }
    }

    void form_group(session& via, const std::string& shape, const std::vector<std::size_t>& members) {
        const auto& first = active_[members.front()];
        const auto& values = [this](std::size_t i) -> const compat::parameters& {
            return active_[i].write->plan.operations.front().sql.parameters;
        };
        if (how_.refused->has(shape)) return;
        const auto found =
            group_update(*how_.known, std::get<update_operation>(first.write->request->operations.front()));
        if (!found || found->parameters != values(members.front()).size()) return;
        update_group group;
        group.shape = shape;
        try {
            group.name = via.prepare(found->sql);
        } catch (const statement_failed& e) {
            spdlog::warn("updates that could be one statement stay apart: {} {}", e.error.sqlstate, e.error.message);
            how_.refused->add(shape);
            return;
        }
        group.turn = first.turn;
        group.recheck = found->recheck;
        group_values columns(found->parameters);
        for (const auto i : members) {
            active_[i].group = static_cast<int>(groups_.size());
            group.members.push_back(i);
            active_[i].place = group.members.size();
            columns.add(values(i), active_[i].resource());
        }
        group.values = columns.take();
        groups_.push_back(std::move(group));
    }

    void add_group(session& via, std::vector<prepared_call>& calls, update_group& group) {
        for (const auto i : group.members)
            active_[i].begins_at = calls.size();
        group.at = calls.size();
        calls.push_back({via.prepare(turn_sql()), &group.turn});
        calls.push_back({group.name, &group.values});
        calls.push_back({via.prepare(recheck_sql()), &group.recheck});
    }

    void enter_together(session& via, std::vector<prepared_call>& calls, std::size_t begin, std::size_t end) {
        std::vector<const write_request*> requests;
        std::vector<std::string> turns;
        for (auto i = begin; i < end; ++i) {
            active_[i].guards_at = calls.size();
            active_[i].guards_row = static_cast<int>(i - begin);
            requests.push_back(active_[i].write->request);
            const auto group = active_[i].group;
            turns.push_back(*(group < 0 ? active_[i].turn : groups_[static_cast<std::size_t>(group)].turn).front());
        }
        auto& set = sets_.emplace_back();
        set.at = calls.size();
        set.parameters = begin_writes_parameters(requests, turns);
        calls.push_back({via.prepare(begin_writes_sql()), &set.parameters});
    }

    void add(session& via, std::vector<prepared_call>& calls, active_write& one) {
        one.begins_at = calls.size();
        if (one.guards_row >= 0) {  // entered already
            calls.push_back({via.prepare(turn_sql()), &one.turn});
        } else {
            one.guards_at = one.begins_at;
            if (one.begin.empty()) one.begin = begin_write_parameters(*one.write->request);
            calls.push_back({via.prepare(begin_write_sql()), &one.begin});
        }
        const auto& request = *one.write->request;
        one.receivers.assign(one.names.size(), text_receiver(*how_.answers, request.by.principal));
        for (std::size_t i = 0; i < one.names.size(); ++i) {
            const auto& planned = one.write->plan.operations[i];
            const bool has_text = planned.shape != answer_shape::affected;
            calls.push_back({one.names[i], &planned.sql.parameters, has_text ? &one.receivers[i] : nullptr});
        }
    }

    /// Takes out whoever did not do what it should.
    bool judge(const round_trip& trip) {
        const auto failed_at = trip.answers.size();
        if (trip.error && (failed_at < opening_ || failed_at >= closing_)) {
            spdlog::warn("writes can't share a transaction: {} {}", trip.error->sqlstate, trip.error->message);
            active_.clear();
            return false;
        }
        if (trip.error &&
            std::any_of(sets_.begin(), sets_.end(), [&](const auto& set) { return set.at == failed_at; })) {
            // It does not say for whom: now one by one.
            sets_allowed_ = false;
            if (waits(trip.error->sqlstate)) patience_ = patience_again;
            return false;
        }
        if (trip.error && std::any_of(groups_.begin(), groups_.end(), [&](const auto& group) {
                return group.at <= failed_at && failed_at <= group.at + 2;
            })) {
            // The same: whose row it was, the updates show one by one.
            groups_allowed_ = false;
            if (waits(trip.error->sqlstate)) patience_ = patience_again;
            return false;
        }
        for (auto& group : groups_) {
            if (group.at + 2 >= failed_at) continue;
            group.answer.emplace(trip.answers[group.at + 1], group.members.size());
            if (is_true(trip.answers[group.at + 2].text(0, 0))) continue;
            how_.refused->add(group.shape);
            groups_allowed_ = false;
        }
        if (!groups_allowed_ && !groups_.empty()) return false;
        const std::string* slow = nullptr;
        std::vector<active_write> staying;
        for (auto& one : active_) {
            if (one.ends_at() <= failed_at) {
                if (read_write(trip, one)) staying.push_back(std::move(one));
            } else if (trip.error && one.begins_at <= failed_at) {
                if (waits(trip.error->sqlstate)) {
                    one.write->fate = write_fate::too_long;
                    slow = &one.resource();
                }
            } else if (slow != nullptr && one.resource() == *slow) {
                one.write->fate = write_fate::too_long;  // it would wait for the same
            } else {
                staying.push_back(std::move(one));
            }
        }
        const bool all = !trip.error && staying.size() == active_.size();
        active_ = std::move(staying);
        if (slow != nullptr) patience_ = patience_again;
        return all;
    }

    /// False: its key is not new, it was refused, it changed another number of rows than expected, or its rows don't
    /// fit into the answers' budget.
    bool read_write(const round_trip& trip, active_write& one) const {
        if (one.claims_row >= 0 && trip.answers[claims_at_].text(one.claims_row, 0) != std::string_view("new"))
            return false;
        write_outcome outcome;
        outcome.write_id = one.write->request->write_id;
        outcome.token = one.write->request->token;
        const auto& guards = trip.answers[one.guards_at];
        const int first = std::max(one.guards_row, 0);
        const int last = one.guards_row < 0 ? guards.size() : one.guards_row + 1;
        for (int row = first; row < last; ++row) {
            if (!is_true(guards.text(row, 2))) return false;
            auto& fence = outcome.fences.emplace_back();
            fence.resource = guards.text(row, 0);
            fence.last_fencing_token = std::strtoull(guards.text(row, 1), nullptr, 10);
        }
        auto at = one.begins_at;
        for (const auto& planned : one.write->plan.operations) {
            const auto changed = one.group < 0 ? std::nullopt : groups_[one.group].answer->changed(one.place);
            if (one.group >= 0 && !changed) return false;
            auto& done = outcome.results.emplace_back();
            if (changed) {
                done.rows_affected = *changed;
            } else if (++at; planned.shape == answer_shape::affected) {
                done.rows_affected = trip.answers[at].affected();
            } else {
                auto text = read_text(planned.shape, one.receivers[at - one.begins_at - 1]);
                if (!text) return false;
                done = std::move(*text);
            }
            if (planned.expect_rows && *planned.expect_rows != done.rows_affected) return false;
        }
        if (one.write->request->seal) mark_sealed(outcome);
        one.write->answer = std::move(outcome);
        return true;
    }

    void commit() {
        const auto& request = *active_.front().write->request;
        std::optional<failure> failed;
        try {
            failed = failure_of(commit_write(slot_, request.write_id, request.resources.front().str(), until_));
        } catch (const statement_failed&) {
            // It does not say for whom.
            return;
        }
        if (failed) return answer_all(*failed);
        for (auto& one : active_)
            one.write->fate = how_.when == durability::later ? write_fate::committed : write_fate::answered;
    }

    /// Adds the outcomes that are to be kept. False: PostgreSQL refused.
    bool keep(session& via) {
        std::vector<outcome_to_keep> outcomes;
        for (const auto& one : active_) {
            if (one.claims_row >= 0)
                outcomes.push_back({one.write->request, kept_text(*one.write->request, *one.write->answer)});
        }
        if (outcomes.empty()) return true;
        try {
            via.exec(keep_outcomes_sql(), keep_outcomes_parameters(outcomes));
            return true;
        } catch (const statement_failed&) {
            roll_back();
            return false;
        }
    }

    void answer_all(const failure& why) {
        for (auto& one : active_) {
            one.write->answer = why;
            one.write->fate = write_fate::answered;
        }
    }

    session_slot& slot_;
    deadline until_;
    const shared_manner& how_;
    std::vector<active_write> active_;
    struct entered_set {
        std::size_t at = 0;
        compat::parameters parameters;
    };
    std::deque<update_group> groups_;  ///< Of the round trip.
    bool groups_allowed_ = true;
    std::deque<entered_set> sets_;  ///< The calls of begin_writes in the round trip.
    std::size_t opening_ = 0;       ///< How many calls come before the first that belongs to a write,
    std::size_t closing_ = 0;       ///< and where the first is that comes behind the last of them.
    std::size_t claims_at_ = 0;     ///< Where the call is that takes the keys.
    compat::parameters claims_;
    compat::parameters seals_;
    bool sets_allowed_ = true;
    compat::parameters timeouts_;
    std::chrono::milliseconds patience_ = patience;
    bool open_ = false;  ///< A transaction was begun in this session and not ended.
};

}  // namespace

void run_shared(session_slot& slot, std::vector<shared_write>& writes, deadline until, const shared_manner& how) {
    shared_run(slot, writes, until, how).perform();
}

}  // namespace fencegate::pg
