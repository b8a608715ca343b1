#pragma once

#include <gateway/domain/memory_budget.hpp>
#include <gateway/pg/connection/session.hpp>
#include <gateway/pg/write/statement_writer.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::pg {

/// Assembles a text that a statement returns in pieces (split_into_pieces). Its bytes are reserved from the answers'
/// budget before the first piece is kept; where they do not fit, the pieces are skipped.
///
/// Threads: not safe; used by one worker.
class text_receiver final : public row_receiver {
  public:
    text_receiver(memory_budget& answers, std::string owner) : answers_(&answers), owner_(std::move(owner)) {}

    /// Takes a row of the statement: the number of the text's bytes, a piece, the statement's other columns.
    void take(const answer_rows& row) override {
        if (!begun_) begin(row);
        if (!refused_ && !row.is_null(0, 1)) text_.append(row.bytes(0, 1));
    }

    /// Returns the number of the text's bytes; empty where the text is NULL.
    const std::optional<std::size_t>& bytes() const { return bytes_; }
    /// Whether the whole text arrived; false where it is NULL or longer than answer_bytes_max.
    bool complete() const { return bytes_ && !refused_ && text_.size() == *bytes_; }
    /// Whether the text did not fit into the budget.
    bool refused() const { return refused_; }
    /// Returns one of the other columns; empty for NULL.
    const std::optional<std::string>& column(std::size_t index) const { return columns_.at(index); }
    std::size_t columns() const { return columns_.size(); }

    std::string take_text() { return std::move(text_); }
    std::shared_ptr<reserved_memory> take_memory() { return std::move(memory_); }

  private:
    void begin(const answer_rows& row) {
        begun_ = true;
        for (int column = 2; column < row.columns(); ++column)
            columns_.push_back(row.is_null(0, column) ? std::nullopt
                                                      : std::optional(std::string(row.bytes(0, column))));
        if (row.is_null(0, 0)) return;
        bytes_ = std::strtoull(row.text(0, 0), nullptr, 10);
        if (row.is_null(0, 1)) return;
        if (*bytes_ > uncounted_bytes_max) {
            memory_ = std::make_shared<reserved_memory>(*answers_, owner_);
            refused_ = !memory_->try_grow(*bytes_);
        }
        if (!refused_) text_.reserve(*bytes_);
    }

    memory_budget* answers_;
    std::string owner_;
    bool begun_ = false;
    bool refused_ = false;
    std::optional<std::size_t> bytes_;
    std::vector<std::optional<std::string>> columns_;
    std::string text_;
    std::shared_ptr<reserved_memory> memory_;
};

/// Returns the number of rows without limit, the second of the other columns of an answer; empty if it has none.
inline std::optional<std::int64_t> total_of(const text_receiver& receiver) {
    if (receiver.columns() < 2 || !receiver.column(1)) return std::nullopt;
    return std::strtoll(receiver.column(1)->c_str(), nullptr, 10);
}

/// Returns the result of an operation that returns rows or a value.
///
/// Errors: overloaded, where the text did not fit into the budget.
inline result<operation_result> read_text(answer_shape shape, text_receiver& receiver) {
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
