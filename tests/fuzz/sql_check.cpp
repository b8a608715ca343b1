#include "sql_check.hpp"

#include "fuzz.hpp"

#include <charconv>
#include <string_view>

namespace fencegate::fuzz {
namespace {

/// Returns the position after a text in quotes that begins at `begin`. A doubled quote belongs to the text.
std::size_t end_of_quoted(std::string_view sql, std::size_t begin) {
    const char quote = sql[begin];
    for (std::size_t at = begin + 1; at < sql.size(); ++at) {
        if (sql[at] != quote) continue;
        if (at + 1 == sql.size() || sql[at + 1] != quote) return at + 1;
        ++at;
    }
    require(false, "every quote of a statement is closed");
    return sql.size();
}

}  // namespace

const pg::catalog& shop_catalog() {
    static const pg::catalog shop = [] {
        pg::catalog out;
        auto& inventory = out.tables["inventory"];
        inventory.target = "public.inventory";
        inventory.operations = {"select", "insert", "update", "delete"};
        inventory.columns = {
            {"sku", "text"},    {"stock", "integer"}, {"price", "numeric(12,2)"},    {"note", "character varying(3)"},
            {"tags", "text[]"}, {"data", "jsonb"},    {"size", "public.dimensions"}, {"odd\"name", "boolean"}};
        inventory.columns.push_back({"email", "public.citext", false, "", "\"my types\""});
        inventory.columns.push_back({"count", "public.positive", false, "integer", ""});
        inventory.primary_key = {"sku"};
        inventory.foreign_keys = {{"likeness", "public.inventory", {"note"}, {"sku"}, false}};
        auto& lines = out.tables["lines"];
        lines.target = "public.lines";
        lines.operations = {"select"};
        lines.columns = {{"sku", "text"}, {"size", "integer"}};
        lines.foreign_keys = {{"of", "public.inventory", {"sku"}, {"sku"}, false}};
        auto& restock = out.functions["restock"];
        restock.target = "public.restock";
        restock.arguments = {{"sku", "text", false}, {"amount", "integer", true}, {"where", "jsonb", true}};
        auto& list = out.functions["list"];
        list.target = "public.list";
        list.arguments = {{"kinds", "text[]", false}};
        list.returns_set = list.returns_row = true;
        list.columns = {{"sku", "text"}, {"size", "integer"}};
        list.changes_nothing = true;
        return out;
    }();
    return shop;
}

void check_statement(const pg::statement& statement) {
    const std::string_view sql = statement.sql;
    for (std::size_t at = 0; at < sql.size();) {
        const char c = sql[at];
        if (c == '\'' || c == '"') {
            at = end_of_quoted(sql, at);
            continue;
        }
        require(static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x7f && (c < 'A' || c > 'Z'),
                "a statement has only the product's words outside quotes");
        require(c != ';' && c != '\\' && sql.substr(at, 2) != "--" && sql.substr(at, 2) != "/*",
                "a statement has no second one and no comment");
        if (c == '$') {
            std::size_t number = 0;
            const auto [end, error] = std::from_chars(sql.data() + at + 1, sql.data() + sql.size(), number);
            require(error == std::errc{} && number >= 1 && number <= statement.parameters.size(),
                    "each placeholder has a parameter");
            at = static_cast<std::size_t>(end - sql.data());
            continue;
        }
        ++at;
    }
    require(statement.parameters.size() <= pg::parameters_max, "the number of parameters is bounded");
    require(statement.pointers.size() <= statement.parameters.size(), "each pointer belongs to a parameter");
}

}  // namespace fencegate::fuzz
