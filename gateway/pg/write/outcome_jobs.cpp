#include <gateway/pg/write/outcome_jobs.hpp>

#include <spdlog/spdlog.h>

#include <stdexcept>

namespace fencegate::pg {
namespace {

/// Deletes at most `count_max` expired outcomes and returns their number. Throws as session::exec does.
std::size_t forget_outcomes(session& session, std::size_t count_max) {
    return session.exec("select fencing.forget_outcomes($1::integer)", {std::to_string(count_max)})[0][0]
        .as<std::size_t>();
}

}  // namespace

void look_up_batch(write_session& session, const std::vector<pending_lookup>& lookups) {
    using outcomes = std::vector<std::optional<result<write_outcome>>>;
    std::vector<const outcome_key*> keys;
    for (const auto& lookup : lookups)
        keys.push_back(&lookup.key);
    const auto find = [&keys](write_session& used) {
        const auto rows = run_statement(used, find_outcomes_sql, key_parameters(keys));
        if (rows.size() != static_cast<int>(keys.size()))
            throw std::length_error("find_outcomes returned another number of rows than keys");
        outcomes out;
        for (int row = 0; row < rows.size(); ++row)
            out.push_back(read_claim(rows.text(row, 0), rows.text(row, 1)));
        return out;
    };
    auto found = attempt<outcomes>(session, false,
                                   [&find](write_session& used) -> result<outcomes> { return retry_once(used, find); });
    for (std::size_t i = 0; i < lookups.size(); ++i) {
        if (!found) {
            lookups[i].caller->answer(found.error());
            continue;
        }
        found_outcome out;
        out.value = std::move((*found)[i]);
        lookups[i].caller->answer(std::move(out));
    }
}

class outcome_sweep::batch final : public job {
  public:
    batch(deadline until, outcome_sweep& owner) : job(until), owner_(owner) {}

    void run(session_slot& slot) noexcept override {
        bool more = false;
        try {
            more = forget_outcomes(slot.get(), sweep_max) == sweep_max;
        } catch (const session_lost&) {
            slot.drop();
        } catch (const std::exception& e) {
            spdlog::warn("expired kept outcomes could not be deleted: {}", e.what());
        }
        end(more);
    }
    void refuse(failure /*why*/) noexcept override { end(false); }

  private:
    void end(bool more) {
        owner_.more_ = more;
        owner_.under_way_ = false;
    }

    outcome_sweep& owner_;
};

std::unique_ptr<job> outcome_sweep::next_batch(std::chrono::steady_clock::time_point now) {
    if (under_way_ || (!more_ && now - last_ < sweep_interval)) return nullptr;
    last_ = now;
    under_way_ = true;
    return std::make_unique<batch>(now + sweep_interval, *this);
}

}  // namespace fencegate::pg
