#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/catalog/catalog.hpp>
#include <gateway/pg/connection/sql_value.hpp>
#include <gateway/pg/write/statement_writer.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace fencegate::pg {

/// The statement for one operation, and how to read its answer.
struct operation_statement {
    statement sql;
    answer_shape shape = answer_shape::affected;
    std::optional<std::int64_t> expect_rows;  ///< The number of rows that it must affect; empty: any number.
    std::optional<std::int64_t> rows_max;     ///< The most rows that it may affect; empty: any number.
    std::string pointer;                      ///< The part of the request that is at fault where PostgreSQL names none.
    std::string on_conflict;  ///< Where the request has the columns that have to be those of a unique index.
    bool changes_rows_only =
        false;  ///< Where no row was affected, nothing is to be undone and no other write was the cause.
};

/// The statements of a write, or the faults of the request.
struct write_statements : statement_faults {
    std::vector<operation_statement> operations;  ///< One for each operation, in order; valid only without faults.
};

/// Whether results contain rows, and which of their columns.
struct returned_rows {
    bool wanted = false;
    std::vector<selected_column> select{};
    row_format format = row_format::json;
};

/// Turns operations into SQL. A pure function.
///
/// Identifiers come from the catalog alone and are quoted; values are bound parameters, as text, and never part of the
/// SQL. PostgreSQL infers their types from the column to which they are assigned or with which they are compared. They
/// are not cast to the column's declared type: a cast to varchar(3) or numeric(12,2) would cut or round, where an
/// assignment refuses and a comparison uses the whole value. Operands of `add` and arguments of functions are cast
/// (without length or precision), because there the type may be ambiguous.
///
/// Errors: none thrown; see write_statements::faults. Pointers are those of the request's parts.
write_statements build_statements(const catalog& known, const std::vector<operation>& operations,
                                  const returned_rows& returned);

/// Returns the failure of a write whose statements have faults.
failure refusal_of(const statement_faults& faults);

}  // namespace fencegate::pg
