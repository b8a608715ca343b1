#include <gateway/pg/write/transaction_run.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace fencegate::pg {
namespace {

text_receiver* receiver_of(transcript& seen, std::size_t step) {
    const auto found = seen.texts.find(step);
    return found == seen.texts.end() ? nullptr : &found->second;
}

bool are_prepared(const write_session& session, const transaction_plan& plan, std::size_t begin, std::size_t end) {
    return std::all_of(plan.steps.begin() + static_cast<std::ptrdiff_t>(begin),
                       plan.steps.begin() + static_cast<std::ptrdiff_t>(end),
                       [&session](const transaction_step& step) { return session.is_prepared(*step.sql); });
}

/// Prepares the statements of one round trip.
///
/// Out: empty, or the step that could not be prepared.
std::optional<std::size_t> prepare(write_session& session, const transaction_plan& plan, std::size_t begin,
                                   std::size_t end, std::vector<prepared_call>& calls, transcript& seen) {
    calls.clear();
    for (auto i = begin; i < end; ++i) {
        try {
            calls.push_back({session.prepare(*plan.steps[i].sql), plan.steps[i].parameters, receiver_of(seen, i)});
        } catch (const statement_failed& e) {
            seen.error = e.error;
            return i;
        }
    }
    return std::nullopt;
}

}  // namespace

void execute(write_session& session, const transaction_plan& plan, std::span<const planned_write> writes,
             memory_budget& answers, unusable_session unusable, deadline until, transcript& seen) {
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
        const auto& step = plan.steps[i];
        if (step.planned != nullptr && gives_text(step.planned->shape))
            seen.texts.try_emplace(i, answers, writes[step.write.value()].request->initiator.principal);
    }
    std::vector<prepared_call> calls;
    for (std::size_t begin = 0; begin < plan.steps.size();) {
        auto end = begin;
        bool user_code = false;
        do {
            user_code = user_code || plan.steps[end].runs_user_code;
        } while (!plan.steps[end++].ends_round_trip);
        const auto first = plan.steps[begin].kind;
        if (begin > 0 && (first == step_kind::operation || first == step_kind::take_role) &&
            std::chrono::steady_clock::now() >= until) {
            seen.out_of_time = true;
            return;
        }
        if (begin < plan.limited_from && !are_prepared(session, plan, plan.limited_from, end)) end = plan.limited_from;
        if (const auto failed = prepare(session, plan, begin, end, calls, seen)) {
            seen.failed = *failed;
            seen.unprepared = true;
            return;
        }
        if (user_code) session.mark_user_code_executed();
        seen.sent = true;
        auto trip = session.run(calls, unusable);
        std::ranges::move(trip.answers, std::back_inserter(seen.answers));
        seen.error = std::move(trip.error);
        seen.failed = seen.answers.size();
        if (seen.error) return;
        for (; begin < end; ++begin) {
            if (end < plan.steps.size() && !allows_next(plan, seen, begin)) return;
        }
    }
}

}  // namespace fencegate::pg
