#include <gateway/pg/executor/job.hpp>
#include <gateway/pg/write/outcome_lookup.hpp>

#include <stdexcept>

namespace fencegate::pg {

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

}  // namespace fencegate::pg
