#include "pg_fake_session.hpp"

#include <cstring>

namespace fencegate::pg::test {

answer_rows make_rows(const std::vector<row>& rows) {
    PGresult* made = PQmakeEmptyPGresult(nullptr, PGRES_TUPLES_OK);
    static char name[] = "column";
    std::vector<PGresAttDesc> columns(rows.empty() ? 3 : rows.front().size(), PGresAttDesc{name, 0, 0, 0, 0, 0, 0});
    PQsetResultAttrs(made, static_cast<int>(columns.size()), columns.data());
    for (std::size_t i = 0; i < rows.size(); ++i) {
        for (std::size_t j = 0; j < rows[i].size(); ++j) {
            auto text = rows[i][j].value_or("");
            PQsetvalue(made, static_cast<int>(i), static_cast<int>(j), rows[i][j] ? text.data() : nullptr,
                       rows[i][j] ? static_cast<int>(text.size()) : -1);
        }
    }
    return answer_rows(made);
}

answer_rows make_affected(int rows) {
    PGresult* made = PQmakeEmptyPGresult(nullptr, PGRES_COMMAND_OK);
    const auto text = "UPDATE " + std::to_string(rows);
    std::memcpy(PQcmdStatus(made), text.c_str(), text.size() + 1);
    return answer_rows(made);
}

std::vector<std::string> elements(const std::optional<std::string>& array) {
    std::vector<std::string> out;
    std::string element;
    for (const char c : array.value_or("{}")) {
        if (c == '{' || c == '"') continue;
        if (c == ',' || c == '}') {
            if (!element.empty()) out.push_back(std::exchange(element, {}));
        } else {
            element += c;
        }
    }
    return out;
}

server_error make_error(std::string sqlstate) {
    server_error out;
    out.sqlstate = std::move(sqlstate);
    out.message = "injected";
    return out;
}

std::string fake_session::prepare(const std::string& sql) {
    if (is_prepared(sql)) return sql;
    require_connection();
    if (!unprepared_text.empty() && sql.find(unprepared_text) != std::string::npos) {
        failed_ = open;
        throw statement_failed(make_error(fault_sqlstate));
    }
    send([&] { prepared_.push_back(sql); });
    return sql;
}

round_trip fake_session::run(std::span<const prepared_call> calls, statement_errors) {
    require_connection();
    round_trip out;
    std::string line = "run";
    for (const auto& call : calls)
        line += ' ' + shorten(call.name);
    log.push_back(line);
    const bool fails = fault_at == messages++;
    if (fails && kind == fault::lost_before) lose();
    for (std::size_t i = 0; i < calls.size(); ++i) {
        const bool refused = (fails && kind == fault::refused && i == std::min(fault_step, calls.size() - 1)) ||
                             (!refused_text.empty() && calls[i].name.find(refused_text) != std::string::npos);
        if (refused || failed_) {
            out.error = make_error(refused ? fault_sqlstate : "25P02");
            out.error->in_code = fault_in_code;
            failed_ = open;
            break;
        }
        auto rows = perform(calls[i]);
        if (calls[i].receiver == nullptr) {
            out.answers.push_back(std::move(rows));
        } else {
            if (rows.size() > 0) calls[i].receiver->take(rows);
            out.answers.push_back(make_rows({}));
        }
    }
    if (!open) commit();  // without BEGIN each round trip is a transaction
    if (fails && kind == fault::lost_after) lose();
    return out;
}

void fake_session::command(const std::string& sql) {
    require_connection();
    log.push_back(sql);
    send([&] {
        if (sql == "commit") {
            if (!failed_) commit();
            end();
        } else if (sql == "rollback") {
            end();
        } else if (sql.starts_with("rollback to")) {
            failed_ = false;
            pending_ = {};
        }
    });
}

std::string fake_session::shorten(const std::string& sql) {
    const auto found = sql.find("fencing.");
    if (found != std::string::npos && !sql.starts_with("update"))
        return sql.substr(found + 8, sql.find('(', found) - found - 8);
    if (sql.find("fencing.write_id") != std::string::npos) return "select_write";
    if (sql.find("pg_logical_emit_message") != std::string::npos) return "pg_logical_emit_message";
    return sql.substr(0, std::min(sql.find(' ', sql.starts_with("set") ? 4 : 0), sql.find('(')));
}

void fake_session::send(const std::function<void()>& effect) {
    const bool fails = fault_at == messages++;
    if (fails && kind == fault::lost_before) lose();
    if (fails && kind == fault::refused) {
        failed_ = open;  // also where it is COMMIT, which a timeout refuses before it is begun
        throw statement_failed(make_error(fault_sqlstate));
    }
    effect();
    if (fails) lose();
}

void fake_session::commit() {
    committed.insert(pending_.writes.begin(), pending_.writes.end());
    std::ranges::move(pending_.kept, std::back_inserter(kept));
    std::ranges::move(pending_.recorded, std::back_inserter(recorded));
    std::ranges::move(pending_.sealed, std::back_inserter(sealed));
    pending_ = {};
}

row fake_session::guard(const std::string& resource, const std::string& token) {
    const auto fence = fences[resource];
    return {resource, std::to_string(std::max<std::uint64_t>(fence, std::stoull(token))),
            fence > std::stoull(token) ? "f" : "t"};
}

answer_rows fake_session::perform(const prepared_call& call) {
    const auto& sql = call.name;
    const auto& values = *call.parameters;
    for (const auto& [text, answer] : answers) {
        if (sql.find(text) != std::string::npos) return answer(values);
    }
    const auto calls = [&sql](const char* name) { return sql.find(name) != std::string::npos; };
    if (sql == "begin") open = true;
    if (calls("fencing.claim_keys") || calls("fencing.find_outcomes")) {
        std::vector<row> rows;
        for (const auto& key : elements(values[1])) {
            const auto found = keys.find(key);
            rows.push_back(found == keys.end() ? row{"new", std::nullopt}
                                               : row{found->second.first, found->second.second});
        }
        return make_rows(rows);
    }
    if (calls("fencing.begin_writes(")) {
        std::vector<row> rows;
        const auto resources = elements(values[0]);
        const auto tokens = elements(values[1]);
        const auto ids = elements(values[2]);
        for (std::size_t i = 0; i < resources.size(); ++i) {
            rows.push_back(guard(resources[i], tokens[i]));
            pending_.writes.push_back(ids[i]);
        }
        return make_rows(rows);
    }
    if (calls("fencing.begin_write(")) {
        std::vector<row> rows;
        for (const auto& resource : elements(values[0]))
            rows.push_back(guard(resource, *values[1]));
        // A stale token commits the history's row, and no write.
        if (std::ranges::all_of(rows, [](const auto& entered) { return entered[2] == "t"; })) {
            pending_.writes.push_back(*values[2]);
            if (calls("$7::jsonb, true)")) pending_.sealed.push_back(*values[2]);
        } else {
            pending_.recorded.emplace_back("write_rejected by the guard");
        }
        return make_rows(rows);
    }
    if (calls("fencing.seal_writes")) std::ranges::move(elements(values[2]), std::back_inserter(pending_.sealed));
    if (calls("fencing.keep_outcomes")) pending_.kept.push_back(values[3].value_or(""));
    if (calls("fencing.record_events")) pending_.recorded.push_back(values[0].value_or(""));
    if (calls("fencing.write_landed")) {
        std::vector<row> rows;
        for (const auto& id : elements(values[0]))
            rows.push_back({committed.contains(id) ? "t" : "f", ""});
        return make_rows(rows);
    }
    if (calls("fencing.shared_resource_expression")) return make_rows({{"t"}});
    if (calls("with ordinality")) {
        std::vector<row> rows;
        for (std::size_t i = 1; i <= elements(values.back()).size(); ++i)
            rows.push_back({std::to_string(i), "t"});
        return make_rows(rows);
    }
    if (sql.starts_with("update")) return make_affected(1);
    return make_rows({{""}});
}

write_request make_request(const std::string& id, const std::vector<std::string>& resources, std::uint64_t token) {
    write_request out;
    out.write_id = id;
    out.token = lockcore::fencing_token{token};
    out.initiator.principal = "orders";
    for (const auto& resource : resources)
        out.resources.push_back(lockcore::resource_name::parse(resource).value());
    update_operation update;
    update.table = "stock";
    update.where.push_back({"id", comparison_operator::eq, boost::json::value(1), "/operations/0/where/id"});
    update.set.push_back({"count", boost::json::value(2), "/operations/0/set/count"});
    out.operations.emplace_back(std::move(update));
    return out;
}

std::shared_ptr<catalog> make_catalog(bool joins_updates) {
    auto out = std::make_shared<catalog>();
    exposed_table table;
    table.target = "shop.stock";
    table.operations = {"select", "insert", "update", "delete"};
    table.columns = {{"id", "integer"}, {"count", "integer"}};
    if (joins_updates) table.shared_resource_expression = "t.name";
    out->tables.emplace("stock", std::move(table));
    exposed_function function;
    function.target = "shop.\"count_stock\"";
    out->functions.emplace("count_stock", std::move(function));
    return out;
}

}  // namespace fencegate::pg::test
