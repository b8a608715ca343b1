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

/// One operation as a statement, how its answer is to be read, and how many rows it must touch (empty: any number).
struct planned_operation {
    statement sql;
    answer_shape shape = answer_shape::affected;
    std::optional<std::int64_t> expect_rows;
    std::string pointer;      ///< Where in the request it stood, or what of it is at fault if PostgreSQL does not say.
    std::string on_conflict;  ///< Where the columns stood that have to be those of a unique index.
};

/// The statements of a write, or why there are none.
struct write_plan : plan_faults {
    std::vector<planned_operation> operations;  ///< One an operation, in order; of use only if there are no faults.
};

/// Whether results carry rows, and which of their columns.
struct returned_rows {
    bool wanted = false;
    std::vector<selected_column> select{};
};

/// Turns operations into SQL. Pure.
///
/// Identifiers come from the catalog alone and are quoted; values are bound parameters, as text, and never part of the
/// SQL. Their types are PostgreSQL's own inference from the column they are assigned to or compared with, not a cast to
/// the column's declared type: a cast to varchar(3) or numeric(12,2) would cut or round where an assignment refuses and
/// a comparison must not. Operands of `add` and arguments of functions are cast (without length or precision), because
/// there the type may be ambiguous.
///
/// Errors: none thrown; see write_plan::faults. Pointers are those of the request's parts.
write_plan plan_write(const catalog& known, const std::vector<operation>& operations, const returned_rows& returned);

/// The failure for a plan with faults: errc::unprocessable.
failure plan_failure(const write_plan& plan);

}  // namespace fencegate::pg
