package fencegate.client;

import java.io.IOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Reads and writes JSON (RFC 8259) strictly. The JDK has no JSON, and this client depends on nothing else.
 *
 * <p>Values are Map, List, String, Boolean, null, Long for integers of 64 bits, so that no digit of a token is lost,
 * and BigDecimal for other numbers. Of members with the same name,
 * which a column of the type json may have, the last one counts.
 */
final class Json {
    /** The gateway accepts 32 levels; its answers have values of {@code jsonb} columns below some of their own. */
    private static final int DEPTH_MAX = 128;
    /** PostgreSQL's numeric has at most 131,072 digits before the point and 16,383 after it. */
    private static final int NUMBER_MAX = 150_000;
    private static final int LONG_DIGITS = 19;

    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** Text that is not JSON. */
    static final class SyntaxException extends IOException {
        private static final long serialVersionUID = 1L;

        SyntaxException(String message) {
            super(message);
        }
    }

    static Object read(byte[] utf8) throws SyntaxException {
        try {
            return read(StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(utf8)).toString());
        } catch (CharacterCodingException e) {
            throw new SyntaxException("the text is not UTF-8");
        }
    }

    static Object read(String text) throws SyntaxException {
        Json reader = new Json(text);
        Object value = reader.value(0);
        reader.skipSpace();
        if (reader.at < text.length()) throw reader.fault("text after the value");
        return value;
    }

    private Object value(int depth) throws SyntaxException {
        if (depth > DEPTH_MAX) throw fault("more than " + DEPTH_MAX + " levels");
        skipSpace();
        return switch (peek()) {
            case '{' -> object(depth);
            case '[' -> array(depth);
            case '"' -> string();
            case 't' -> literal("true", true);
            case 'f' -> literal("false", false);
            case 'n' -> literal("null", null);
            default -> number();
        };
    }

    private Map<String, Object> object(int depth) throws SyntaxException {
        Map<String, Object> members = new LinkedHashMap<>();
        at++;
        if (takes('}')) return Map.of();
        do {
            skipSpace();
            if (peek() != '"') throw fault("no name");
            String name = string();
            if (!takes(':')) throw fault("no colon");
            members.put(name, value(depth + 1));
        } while (takes(','));
        if (!takes('}')) throw fault("an object without end");
        return Collections.unmodifiableMap(members);
    }

    private List<Object> array(int depth) throws SyntaxException {
        List<Object> values = new ArrayList<>();
        at++;
        if (takes(']')) return List.of();
        do {
            values.add(value(depth + 1));
        } while (takes(','));
        if (!takes(']')) throw fault("an array without end");
        return Collections.unmodifiableList(values);
    }

    private String string() throws SyntaxException {
        StringBuilder out = new StringBuilder();
        for (at++; peek() != '"'; at++) {
            char next = text.charAt(at);
            if (next < ' ') throw fault("a control character");
            out.append(next == '\\' ? escape() : next);
        }
        at++;
        return out.toString();
    }

    private char escape() throws SyntaxException {
        at++;
        char kind = peek();
        switch (kind) {
            case '"', '\\', '/':
                return kind;
            case 'b':
                return '\b';
            case 'f':
                return '\f';
            case 'n':
                return '\n';
            case 'r':
                return '\r';
            case 't':
                return '\t';
            case 'u':
                break;
            default:
                throw fault("an unknown escape");
        }
        int code = 0;
        for (int digit = 0; digit < 4; digit++) {
            at++;
            int value = peek() < 128 ? Character.digit(peek(), 16) : -1;
            if (value < 0) throw fault("an escape without four digits");
            code = code * 16 + value;
        }
        return (char) code;
    }

    private Object literal(String word, Object value) throws SyntaxException {
        if (!text.startsWith(word, at)) throw fault("an unknown word");
        at += word.length();
        return value;
    }

    private Object number() throws SyntaxException {
        int start = at;
        if (peek() == '-') at++;
        if (peek() == '0') at++;
        else digits();
        boolean integer = true;
        if (at < text.length() && text.charAt(at) == '.') {
            integer = false;
            at++;
            digits();
        }
        if (at < text.length() && (text.charAt(at) == 'e' || text.charAt(at) == 'E')) {
            integer = false;
            at++;
            if (peek() == '+' || peek() == '-') at++;
            digits();
        }
        if (at - start > NUMBER_MAX) throw fault("a number of more than " + NUMBER_MAX + " characters");
        String number = text.substring(start, at);
        try {
            if (integer && number.length() <= LONG_DIGITS + 1) {
                BigInteger whole = new BigInteger(number);
                if (whole.bitLength() < Long.SIZE) return whole.longValue();
            }
            return new BigDecimal(number);
        } catch (NumberFormatException e) {
            throw fault("a number with too large an exponent");
        }
    }

    private void digits() throws SyntaxException {
        int start = at;
        while (at < text.length() && text.charAt(at) >= '0' && text.charAt(at) <= '9') at++;
        if (at == start) throw fault("no value");
    }

    private void skipSpace() {
        while (at < text.length() && " \t\n\r".indexOf(text.charAt(at)) >= 0) at++;
    }

    private boolean takes(char wanted) {
        skipSpace();
        boolean found = at < text.length() && text.charAt(at) == wanted;
        if (found) at++;
        return found;
    }

    private char peek() throws SyntaxException {
        if (at >= text.length()) throw fault("the text ends");
        return text.charAt(at);
    }

    private SyntaxException fault(String what) {
        return new SyntaxException("not JSON at character " + at + ": " + what);
    }

    /** Throws IllegalArgumentException for a value that JSON does not have, and for text that is not Unicode. */
    static byte[] write(Object value) {
        StringBuilder out = new StringBuilder();
        append(out, value, 0);
        try {
            ByteBuffer utf8 = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(out));
            byte[] bytes = new byte[utf8.remaining()];
            utf8.get(bytes);
            return bytes;
        } catch (CharacterCodingException e) {
            throw new IllegalArgumentException("a text has half of a surrogate pair", e);
        }
    }

    private static void append(StringBuilder out, Object value, int depth) {
        if (depth > DEPTH_MAX) throw new IllegalArgumentException("a value has more than " + DEPTH_MAX + " levels");
        if (value == null || value instanceof Boolean || value instanceof Long || value instanceof Integer
                || value instanceof Short
                || value instanceof Byte || value instanceof BigInteger || value instanceof BigDecimal) {
            out.append(value);
        } else if (value instanceof Double || value instanceof Float) {
            if (!Double.isFinite(((Number) value).doubleValue()))
                throw new IllegalArgumentException("JSON has no number " + value);
            out.append(value);
        } else if (value instanceof CharSequence words) {
            appendText(out, words);
        } else if (value instanceof Map<?, ?> map) {
            String separator = "{";
            for (Map.Entry<?, ?> member : map.entrySet()) {
                if (!(member.getKey() instanceof String name))
                    throw new IllegalArgumentException("a name in a JSON object has to be a String");
                out.append(separator);
                appendText(out, name);
                append(out.append(':'), member.getValue(), depth + 1);
                separator = ",";
            }
            out.append(map.isEmpty() ? "{}" : "}");
        } else if (value instanceof Collection<?> list) {
            String separator = "[";
            for (Object element : list) {
                append(out.append(separator), element, depth + 1);
                separator = ",";
            }
            out.append(list.isEmpty() ? "[]" : "]");
        } else {
            throw new IllegalArgumentException("a value of " + value.getClass().getName()
                    + " has no form in JSON; send it as a String or a number");
        }
    }

    private static void appendText(StringBuilder out, CharSequence words) {
        out.append('"');
        for (int i = 0; i < words.length(); i++) {
            char next = words.charAt(i);
            if (next == '"' || next == '\\') out.append('\\').append(next);
            else if (next < ' ') out.append(String.format("\\u%04x", (int) next));
            else out.append(next);
        }
        out.append('"');
    }
}
