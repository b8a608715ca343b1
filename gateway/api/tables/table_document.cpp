#include <gateway/api/routes.hpp>

#include <gateway/http/codec/json_io.hpp>
#include <gateway/pg/database.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

namespace fencegate::api {
namespace {

boost::json::object reference(const std::string& part, const std::string& name) {
    return {{"$ref", "#/components/" + part + "/" + name}};
}

boost::json::object parameter(std::string_view name, std::string_view in, boost::json::object schema,
                              std::string_view description) {
    return {{"name", name}, {"in", in}, {"description", description}, {"schema", std::move(schema)}};
}

/// The parameters that many operations have, by their names in the document.
boost::json::object common_parameters() {
    const boost::json::object text{{"type", "string"}},
        number{{"type", "integer"}, {"format", "int64"}, {"minimum", 0}};
    return {
        {"select",
         parameter("select", "query", text, "Columns of the rows: sku,amount::text; of a read also lines(sku)")},
        {"order", parameter("order", "query", text, "Columns to sort by: stock.desc,sku")},
        {"limit", parameter("limit", "query", number, "Maximum number of rows")},
        {"offset", parameter("offset", "query", number, "Number of rows to skip")},
        {"lease", parameter("Fencing-Lease", "header", text, "The lease_id of the lease under which to write or read")},
        {"prefer", parameter("Prefer", "header", text, "return=representation: answer with the changed rows")},
        {"key", parameter("Idempotency-Key", "header", text, "Executes the request once, however often it is sent")}};
}

boost::json::array references(std::initializer_list<const char*> names) {
    boost::json::array out;
    for (const char* name : names)
        out.emplace_back(reference("parameters", name));
    return out;
}

/// A parameter for each column, which selects rows.
void add_filters(boost::json::array& parameters, const boost::json::object& rows) {
    for (const auto& [name, schema] : rows.at("properties").as_object())
        parameters.emplace_back(
            parameter(name, "query", {{"type", "string"}}, "Only rows with eq.VALUE, gte.VALUE, …"));
}

boost::json::object content(boost::json::value schema) {
    return {{"application/json", {{"schema", std::move(schema)}}}};
}

boost::json::object body(boost::json::value schema) {
    return {{"required", true}, {"content", content(std::move(schema))}};
}

boost::json::object array_of(boost::json::object schema) {
    return {{"type", "array"}, {"items", std::move(schema)}};
}

boost::json::object answer(std::string_view description, boost::json::value schema) {
    return {{"description", description}, {"content", content(std::move(schema))}};
}

/// The answers of an operation: these, and problems.
boost::json::object answers(boost::json::object of_operation) {
    of_operation["default"] = reference("responses", "problem");
    return of_operation;
}

const boost::json::object no_content{{"description", "Done; no content"}};

/// Places in pg::described_object::schemas of a table.
enum : std::size_t { row_schema, new_row_schema, change_schema };
/// Those of a function.
enum : std::size_t { argument_schema, result_schema };

boost::json::object describe_operations(const pg::described_object& table, boost::json::object& schemas) {
    const auto& rows = table.schemas.at(row_schema).as_object();
    const auto row = reference("schemas", table.name);
    schemas[table.name] = rows;
    boost::json::object out;
    if (table.operations.contains("select")) {
        auto parameters = references({"select", "order", "limit", "offset", "lease"});
        add_filters(parameters, rows);
        out["get"] = {{"parameters", std::move(parameters)},
                      {"responses", answers({{"200", answer("Rows", array_of(row))},
                                             {"206", answer("Rows, of more", array_of(row))}})}};
    }
    const auto changed = [&](const char* verb, const char* done, boost::json::array parameters) {
        return boost::json::object{
            {"operationId", std::string(verb) + "_" + table.name},
            {"parameters", std::move(parameters)},
            {"responses", answers({{done, answer("The rows, where return=representation asks for them", array_of(row))},
                                   {"204", no_content}})}};
    };
    if (table.operations.contains("insert")) {
        const auto name = table.name + ".insert";
        schemas[name] = table.schemas.at(new_row_schema);
        const auto added = reference("schemas", name);
        out["post"] = changed("insert", "201", references({"lease", "key", "prefer", "select"}));
        out["post"].as_object()["responses"].as_object().erase("204");
        out["post"].as_object()["requestBody"] = body({{"oneOf", {added, array_of(added)}}});
    }
    auto filtered = references({"lease", "key", "prefer", "select"});
    add_filters(filtered, rows);
    if (table.operations.contains("update")) {
        const auto name = table.name + ".update";
        schemas[name] = table.schemas.at(change_schema);
        out["patch"] = changed("update", "200", filtered);
        out["patch"].as_object()["requestBody"] = body(reference("schemas", name));
    }
    if (table.operations.contains("delete")) out["delete"] = changed("delete", "200", filtered);
    return out;
}

boost::json::object describe_calls(const pg::described_object& function) {
    const auto& arguments = function.schemas.at(argument_schema).as_object();
    boost::json::object results{{"204", no_content}};
    if (!function.returns_void) results = {{"200", answer("What it returns", function.schemas.at(result_schema))}};
    boost::json::object out;
    out["post"] = {{"description", function.description},
                   {"parameters", references({"lease", "key"})},
                   {"requestBody", body(arguments)},
                   {"responses", answers(results)}};
    if (function.changes_nothing) {
        auto parameters = references({"lease"});
        for (const auto& [name, schema] : arguments.at("properties").as_object())
            parameters.emplace_back(parameter(name, "query", {{"type", "string"}}, "An argument"));
        out["get"] = {{"description", function.description},
                      {"parameters", std::move(parameters)},
                      {"responses", answers(std::move(results))}};
    }
    return out;
}

boost::json::object describe(const std::vector<pg::described_object>& exposed, const http::rights& allowed) {
    boost::json::object paths, schemas;
    for (const auto& object : exposed) {
        if (!allowed.require_exposed(object.name)) continue;
        if (object.is_function) {
            paths["/rpc/" + object.name] = describe_calls(object);
        } else {
            paths["/" + object.name] = describe_operations(object, schemas);
        }
    }
    const boost::json::object problem{{"description", "A problem (RFC 9457); /openapi.json describes each"},
                                      {"content", {{"application/problem+json", boost::json::object()}}}};
    return {
        {"openapi", "3.1.0"},
        {"info",
         {{"title", "Exposed tables and functions"},
          {"version", "1.0.0"},
          {"description", "What this credential may use. Writes need a lease; /openapi.json describes the gateway."}}},
        {"servers", {{{"url", "/rest/v1"}}}},
        {"paths", std::move(paths)},
        {"components",
         {{"schemas", std::move(schemas)},
          {"parameters", common_parameters()},
          {"responses", {{"problem", problem}}}}}};
}

}  // namespace

http::awaitable_response describe_tables(const write_services& services, http::request r) {
    if (r.rights->database()) {
        const auto refused =
            make_failure(errc::forbidden,
                         "A credential with a database_role has the rights of that role, which this does not show.");
        co_return refused;
    }
    // Made by the worker: of many tables it takes milliseconds, in which the I/O thread serves others.
    const auto make_document = [rights = r.rights](pg::session& session) {
        return boost::json::serialize(describe(pg::describe_exposed(session), *rights));
    };
    auto document = co_await services.database.read(r.principal, read_cost::expensive, r.deadline, make_document);
    if (!document) co_return document.error();
    auto out = http::json_response(std::move(*document));
    if (r.header_list("accept").find("openapi+json") != std::string::npos)  // as PostgREST's own client asks
        out.content_type = "application/openapi+json";
    co_return out;
}

}  // namespace fencegate::api
