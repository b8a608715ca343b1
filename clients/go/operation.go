package fencegate

import (
	"encoding/json"
	"fmt"
)

// Operation is one operation of a guarded write on an exposed table or function. Its methods return a changed copy.
//
// Values are what encoding/json writes as JSON that the database reads: strings, numbers, booleans, nil, time.Time, and
// slices and maps of these. Use json.Number or a string where a float64 has too few digits. Bytes are refused: convert
// them to text. The first fault is returned by the write, which is not sent then.
type Operation struct {
	members map[string]any
	err     error
}

// Update changes rows of a table. It needs Where.
func Update(table string) Operation { return Operation{}.with("update", table) }

// Insert adds a row to a table, with Values.
func Insert(table string) Operation { return Operation{}.with("insert", table) }

// Delete deletes rows of a table. It needs Where.
func Delete(table string) Operation { return Operation{}.with("delete", table) }

// Call calls a function, with Arguments.
func Call(function string) Operation { return Operation{}.with("call", function) }

// Where adds the condition that a column has this value, which is not nil: use WhereOp with "is".
func (operation Operation) Where(column string, value any) Operation {
	return operation.WhereOp(column, "eq", value)
}

// WhereOp adds a condition with an operator: eq, neq, lt, lte, gt, gte, in or is. Several conditions of one column all
// have to hold; each has an operator of its own.
func (operation Operation) WhereOp(column, operator string, value any) Operation {
	conditions := copyOf(operation.group("where")[column])
	if _, isTwice := conditions[operator]; isTwice {
		return operation.fail(fmt.Errorf("fencegate: the column %s has a condition with %s already", column, operator))
	}
	conditions[operator] = value
	return operation.check(column, value).withIn("where", column, conditions)
}

// Set assigns a value to a column of an update.
func (operation Operation) Set(column string, value any) Operation {
	return operation.check(column, value).withIn("set", column, value)
}

// Add adds a number, which may be negative, to a column of an update, in the database.
func (operation Operation) Add(column string, number any) Operation {
	return operation.check(column, number).withIn("add", column, number)
}

// Values gives columns of an inserted row their values.
func (operation Operation) Values(values map[string]any) Operation {
	return operation.withAll("values", values)
}

// Arguments gives arguments of a function their values.
func (operation Operation) Arguments(values map[string]any) Operation {
	return operation.withAll("args", values)
}

// ExpectRows undoes the whole write unless the operation affects this number of rows.
func (operation Operation) ExpectRows(rows int) Operation { return operation.with("expect_rows", rows) }

// MarshalJSON returns the operation as it is in POST /v1/writes.
func (operation Operation) MarshalJSON() ([]byte, error) {
	if operation.err != nil {
		return nil, operation.err
	}
	return json.Marshal(operation.members)
}

func (operation Operation) withAll(group string, values map[string]any) Operation {
	for name, value := range values {
		operation = operation.check(name, value).withIn(group, name, value)
	}
	return operation
}

func (operation Operation) withIn(group, name string, value any) Operation {
	members := copyOf(operation.members[group])
	members[name] = value
	return operation.with(group, members)
}

func (operation Operation) with(name string, value any) Operation {
	operation.members = copyOf(operation.members)
	operation.members[name] = value
	return operation
}

func (operation Operation) group(name string) map[string]any {
	members, _ := operation.members[name].(map[string]any)
	return members
}

func (operation Operation) check(name string, value any) Operation {
	if _, isBytes := value.([]byte); isBytes {
		return operation.fail(fmt.Errorf("fencegate: the value of %s has the type []byte: convert it to text", name))
	}
	return operation
}

func (operation Operation) fail(err error) Operation {
	if operation.err == nil {
		operation.err = err
	}
	return operation
}

// copyOf returns a copy of a map, with nothing in it if there is none.
func copyOf(members any) map[string]any {
	copied := map[string]any{}
	earlier, _ := members.(map[string]any)
	for name, value := range earlier {
		copied[name] = value
	}
	return copied
}
