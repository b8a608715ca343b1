#include <gateway/pg/connection/text_receiver.hpp>

#include <cstdlib>

namespace fencegate::pg {

void text_receiver::take(const answer_rows& row) {
    if (!begun_) begin(row);
    if (!refused_ && !row.is_null(0, 1)) text_.append(row.bytes(0, 1));
}

void text_receiver::begin(const answer_rows& row) {
    begun_ = true;
    for (int column = 2; column < row.columns(); ++column)
        columns_.push_back(row.is_null(0, column) ? std::nullopt : std::optional(std::string(row.bytes(0, column))));
    if (row.is_null(0, 0)) return;
    bytes_ = std::strtoull(row.text(0, 0), nullptr, 10);
    if (row.is_null(0, 1)) return;
    if (*bytes_ > uncounted_bytes_max) {
        memory_ = std::make_shared<reserved_memory>(*answers_, owner_);
        refused_ = !memory_->try_grow(*bytes_);
    }
    if (!refused_) text_.reserve(*bytes_);
}

std::optional<std::int64_t> total_of(const text_receiver& receiver) {
    if (receiver.columns() < 2 || !receiver.column(1)) return std::nullopt;
    return std::strtoll(receiver.column(1)->c_str(), nullptr, 10);
}

result<operation_result> read_text(answer_shape shape, text_receiver& receiver) {
    if (receiver.refused()) return answers_budget_failure(*receiver.bytes());
    operation_result out;
    out.is_call = shape == answer_shape::value;
    if (!out.is_call) out.rows_affected = std::strtoll(receiver.column(0).value().c_str(), nullptr, 10);
    out.total = total_of(receiver);
    out.json = receiver.complete() ? receiver.take_text() : "null";
    out.memory = receiver.take_memory();
    return out;
}

}  // namespace fencegate::pg
