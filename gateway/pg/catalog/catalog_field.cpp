#include <gateway/pg/catalog/catalog_field.hpp>

#include <boost/json/parse.hpp>
#include <boost/json/value_to.hpp>

#include <stdexcept>

namespace fencegate::pg {

std::vector<catalog_field> parse_catalog_fields(std::string_view json) {
    std::vector<catalog_field> out;
    const auto parsed = boost::json::parse({json.data(), json.size()});
    for (const auto& item : parsed.as_array()) {
        const auto& object = item.as_object();
        catalog_field field;
        field.name = object.at("name").as_string();
        field.type = object.at("type").as_string();
        if (const auto* base = object.if_contains("base")) field.base = base->as_string();
        if (const auto* schema = object.if_contains("operators")) field.operators = schema->as_string();
        const auto* has_default = object.if_contains("has_default");
        field.has_default = has_default && has_default->is_bool() && has_default->as_bool();
        out.push_back(std::move(field));
    }
    return out;
}

std::set<std::string> parse_catalog_operations(std::string_view json) {
    std::set<std::string> out;
    const auto parsed = boost::json::parse({json.data(), json.size()});
    for (const auto& operation : parsed.as_array())
        out.emplace(operation.as_string());
    return out;
}

std::vector<std::string> parse_catalog_names(std::string_view json) {
    return boost::json::value_to<std::vector<std::string>>(boost::json::parse({json.data(), json.size()}));
}

std::vector<catalog_foreign_key> parse_catalog_foreign_keys(std::string_view json) {
    std::vector<catalog_foreign_key> out;
    const auto parsed = boost::json::parse({json.data(), json.size()});
    for (const auto& item : parsed.as_array()) {
        const auto& object = item.as_object();
        catalog_foreign_key key;
        key.name = object.at("name").as_string();
        key.target = object.at("target").as_string();
        key.columns = boost::json::value_to<std::vector<std::string>>(object.at("columns"));
        key.target_columns = boost::json::value_to<std::vector<std::string>>(object.at("target_columns"));
        key.is_unique = object.at("is_unique").as_bool();
        if (key.columns.empty() || key.columns.size() != key.target_columns.size())
            throw std::invalid_argument("a foreign key whose columns do not match");
        out.push_back(std::move(key));
    }
    return out;
}

}  // namespace fencegate::pg
