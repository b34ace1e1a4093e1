package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// maxBits bounds integers, so that each operation on them is cheap. 2^16 bits are some 19,700 decimal digits.
const maxBits = 1 << 16

// normInt is an integer as a value: int64 where it fits.
func normInt(n *big.Int) any {
	if n.IsInt64() {
		return n.Int64()
	}
	return n
}

// intOf turns a bool into the int it is in Python and leaves other values alone.
func intOf(v any) any {
	if b, ok := v.(bool); ok {
		if b {
			return int64(1)
		}
		return int64(0)
	}
	return v
}

func isNumber(v any) bool {
	switch v.(type) {
	case bool, int64, *big.Int, float64:
		return true
	}
	return false
}

func toBig(v any) *big.Int {
	if n, ok := v.(int64); ok {
		return big.NewInt(n)
	}
	return v.(*big.Int)
}

// toFloat converts an int or float; an int too large for a float is an error, as in Python.
func (e *exec) toFloat(v any) float64 {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case float64:
		return v
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		if math.IsInf(f, 0) {
			e.fail("int too large to convert to float")
		}
		return f
	}
	return 0
}

func (e *exec) checkBits(n int) {
	if n > maxBits {
		e.failWith(ErrLimit, "integer has more than "+strconv.Itoa(maxBits)+" bits")
	}
	e.step(n / 64)
}

// add is a + b for what is not two strings.
func (e *exec) add(a, b any) any {
	switch x := a.(type) {
	case int64:
		if y, ok := b.(int64); ok {
			if s := x + y; (s > x) == (y > 0) {
				return s
			}
		}
	case []any:
		if y, ok := b.([]any); ok {
			return concatLists(e, x, y)
		}
	case tuple:
		if y, ok := b.(tuple); ok {
			return tuple(concatLists(e, x, y))
		}
	case string, *Text:
		if u, ok := b.(*undefined); ok {
			e.undefinedUse(u)
		}
		if !isString(b) {
			if b == nil {
				e.nullText("")
			}
			e.fail("can only concatenate str (not \"" + typeName(b) + "\") to str")
		}
		return e.join([]any{a, b})
	}
	return e.arith("+", a, b)
}

func concatLists(e *exec, a, b []any) []any {
	e.buildCells(len(a) + len(b))
	return append(append(make([]any, 0, len(a)+len(b)), a...), b...)
}

// arith is every binary operator on numbers, and those on strings and lists that are no concatenation.
func (e *exec) arith(op string, a, b any) any {
	for _, v := range [2]any{a, b} {
		if u, ok := v.(*undefined); ok {
			e.undefinedUse(u)
		}
	}
	x, y := intOf(a), intOf(b)
	if isNumber(x) && isNumber(y) {
		_, xf := x.(float64)
		_, yf := y.(float64)
		if xf || yf {
			return e.floatOp(op, e.toFloat(x), e.toFloat(y))
		}
		return e.intOp(op, x, y)
	}
	switch op {
	case "*":
		if v, ok := e.timesSequence(x, y); ok {
			return v
		}
		if v, ok := e.timesSequence(y, x); ok {
			return v
		}
	case "%":
		if s, lit, ok := asString(a); ok {
			return e.percent(s, lit, b, nil)
		}
	}
	if op == "+" && a == nil && isString(b) {
		e.nullText("")
	}
	e.fail("unsupported operand types for " + op + ": '" + typeName(a) + "' and '" + typeName(b) + "'")
	return nil
}

func (e *exec) timesSequence(seq, count any) (any, bool) {
	if _, ok := count.(float64); ok || !isNumber(count) {
		return nil, false
	}
	n := max(0, e.wantInt(count, "count"))
	switch s := seq.(type) {
	case string, *Text:
		str, lit, _ := asString(s)
		return e.repeat(str, lit, n), true
	case []any:
		return e.repeatItems(s, n), true
	case tuple:
		return tuple(e.repeatItems(s, n)), true
	}
	return nil, false
}

func (e *exec) repeatItems(items []any, n int) []any {
	if len(items) == 0 || n == 0 {
		return []any{}
	}
	if n > maxSize/len(items) {
		e.build(-1)
	}
	e.buildCells(n * len(items))
	out := make([]any, 0, n*len(items))
	for range n {
		out = append(out, items...)
	}
	return out
}

func (e *exec) intOp(op string, x, y any) any {
	a, aSmall := x.(int64)
	b, bSmall := y.(int64)
	if (op == "/" || op == "//" || op == "%") && bSmall && b == 0 {
		e.fail("division by zero")
	}
	if aSmall && bSmall {
		switch op {
		case "+":
			if s := a + b; (s > a) == (b > 0) {
				return s
			}
		case "-":
			if s := a - b; (s < a) == (b > 0) {
				return s
			}
		case "*":
			const half = 1 << 31
			if a > -half && a < half && b > -half && b < half {
				return a * b
			}
		case "/":
			const exact = 1 << 53
			if a > -exact && a < exact && b > -exact && b < exact {
				return float64(a) / float64(b)
			}
		case "//":
			if b != -1 {
				q := a / b
				if a%b != 0 && (a < 0) != (b < 0) {
					q--
				}
				return q
			}
		case "%":
			if b == -1 {
				return int64(0)
			}
			m := a % b
			if m != 0 && (m < 0) != (b < 0) {
				m += b
			}
			return m
		}
	}
	return e.bigOp(op, toBig(x), toBig(y))
}

func (e *exec) bigOp(op string, a, b *big.Int) any {
	r := new(big.Int)
	switch op {
	case "+":
		r.Add(a, b)
	case "-":
		r.Sub(a, b)
	case "*":
		e.checkBits(a.BitLen() + b.BitLen())
		r.Mul(a, b)
	case "/":
		f, _ := new(big.Rat).SetFrac(a, b).Float64()
		if math.IsInf(f, 0) {
			e.fail("integer division result too large for a float")
		}
		return f
	case "//", "%":
		e.checkBits(a.BitLen() + b.BitLen())
		m := new(big.Int)
		r.QuoRem(a, b, m)
		if m.Sign() != 0 && m.Sign() != b.Sign() {
			m.Add(m, b)
			r.Sub(r, big.NewInt(1))
		}
		if op == "%" {
			r = m
		}
	case "**":
		if b.Sign() < 0 {
			if a.Sign() == 0 {
				e.fail("0 cannot be raised to a negative power")
			}
			return e.floatOp(op, e.toFloat(normInt(a)), e.toFloat(normInt(b)))
		}
		if bits := a.BitLen(); bits > 1 {
			if !b.IsInt64() || b.Int64() > maxBits {
				e.checkBits(maxBits + 1)
			}
			e.checkBits((bits - 1) * int(b.Int64()))
		} else if !b.IsInt64() { // 0, 1 and -1
			b = big.NewInt(int64(2 + b.Bit(0)))
		}
		r.Exp(a, b, nil)
	}
	e.checkBits(r.BitLen())
	return normInt(r)
}

func (e *exec) floatOp(op string, a, b float64) any {
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	case "**":
		if a == 0 && b < 0 {
			e.fail("0.0 cannot be raised to a negative power")
		}
		r := math.Pow(a, b)
		if math.IsInf(r, 0) && !math.IsInf(a, 0) && !math.IsInf(b, 0) {
			e.fail("numerical result out of range")
		}
		if math.IsNaN(r) && !math.IsNaN(a) && !math.IsNaN(b) {
			e.fail("a negative number to a fractional power is complex")
		}
		return r
	}
	if b == 0 {
		e.fail("float division by zero")
	}
	if op == "/" {
		return a / b
	}
	mod := math.Mod(a, b)
	div := (a - mod) / b
	if mod != 0 {
		if (b < 0) != (mod < 0) {
			mod += b
			div--
		}
	} else {
		mod = math.Copysign(0, b)
	}
	if op == "%" {
		return mod
	}
	if div == 0 {
		return math.Copysign(0, a/b)
	}
	floor := math.Floor(div)
	if div-floor > 0.5 {
		floor++
	}
	return floor
}

// floatText is Python's repr of a float.
func floatText(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	mant, exp, _ := strings.Cut(s, "e")
	n, _ := strconv.Atoi(exp)
	if n >= -4 && n < 16 {
		s = strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	return mant + "e" + exp
}

// intText is Python's str of a big integer, which refuses more than maxIntDigits digits.
func (e *exec) intText(n *big.Int) string {
	const bitsPerDigit = 3.32
	if float64(n.BitLen()) > maxIntDigits*bitsPerDigit+bitsPerDigit {
		e.fail("integer has more than " + strconv.Itoa(maxIntDigits) + " digits and cannot be printed")
	}
	e.step(n.BitLen() / 8)
	return n.String()
}

// parseInt is Python's int(s, base); ok is false for malformed text.
func parseInt(s string, base int) (any, bool) {
	s = strings.TrimFunc(s, isSpace)
	body := strings.TrimLeft(s, "+-")
	if len(s)-len(body) > 1 || body == "" || len(body) > maxIntDigits+3 {
		return nil, false
	}
	if base == 0 || base == 2 || base == 8 || base == 16 {
		if len(body) > 2 && body[0] == '0' {
			if b := map[byte]int{'b': 2, 'o': 8, 'x': 16}[body[1]|32]; b != 0 && (base == 0 || base == b) {
				base, body = b, strings.TrimPrefix(body[2:], "_")
			}
		}
		if base == 0 {
			if body[0] == '0' && strings.Trim(body, "0_") != "" {
				return nil, false
			}
			base = 10
		}
	}
	if base < 2 || base > 36 || strings.HasPrefix(body, "_") || strings.HasSuffix(body, "_") || strings.Contains(body, "__") || strings.ContainsAny(body, "+-") {
		return nil, false
	}
	n, ok := new(big.Int).SetString(strings.ReplaceAll(body, "_", ""), base)
	if !ok {
		return nil, false
	}
	if s[0] == '-' {
		n.Neg(n)
	}
	return normInt(n), true
}

// parseFloat is Python's float(s).
func parseFloat(s string) (float64, bool) {
	s = strings.TrimFunc(s, isSpace)
	if strings.ContainsAny(s, "xXpP") || strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}
