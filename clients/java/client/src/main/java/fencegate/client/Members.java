package fencegate.client;

import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * The members of a JSON object that a gateway answered.
 * A member that is missing or has another type is an error that names it.
 */
record Members(Map<String, Object> values) {

    @SuppressWarnings("unchecked") // Json makes maps of names only
    static Members of(Object json) {
        if (json instanceof Map<?, ?> map) return new Members((Map<String, Object>) map);
        throw new FencegateException(null, "The gateway's answer is no JSON object.", null);
    }

    String text(String name) {
        return required(name, String.class);
    }

    long number(String name) {
        return required(name, Long.class);
    }

    boolean isTrue(String name) {
        return Boolean.TRUE.equals(values.get(name));
    }

    /** Returns the objects of an array: none if there is no such member. */
    List<Members> list(String name) {
        return array(name).stream().map(Members::of).toList();
    }

    /** Returns the objects of an array that has to be there. */
    List<Members> requiredList(String name) {
        required(name, List.class);
        return list(name);
    }

    List<String> texts(String name) {
        return array(name).stream().map(String.class::cast).toList();
    }

    private List<?> array(String name) {
        return values.containsKey(name) ? required(name, List.class) : List.of();
    }

    <T> Optional<T> optional(String name, Class<T> type) {
        return values.get(name) == null ? Optional.empty() : Optional.of(required(name, type));
    }

    private <T> T required(String name, Class<T> type) {
        Object value = values.get(name);
        if (type.isInstance(value)) return type.cast(value);
        throw new FencegateException(null,
                "The member " + name + " of the gateway's answer is missing or has another type.", null);
    }
}
