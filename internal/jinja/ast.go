package jinja

// expr is an expression. Its eval never returns a value outside the set that value.go lists, and fails by a panic
// with an *Error that Render turns into its result.
type expr interface{ eval(e *exec) any }

// stmt is a statement; run writes to e.out.
type stmt interface{ run(e *exec) signal }

// signal tells how a statement ended.
type signal uint8

const (
	next signal = iota
	stopLoop
	nextItem
)

type block []stmt

// Expressions.
type (
	constExpr struct{ v any }
	nameExpr  struct {
		at pos
		id int32
	}
	listExpr struct {
		at    pos
		items []expr
		tuple bool
	}
	dictExpr struct {
		at           pos
		keys, values []expr
	}
	attrExpr struct {
		at   pos
		x    expr
		name string
	}
	itemExpr struct {
		at     pos
		x, key expr
	}
	sliceExpr struct {
		at            pos
		x             expr
		lo, hi, steps expr // nil where left out
	}
	callExpr struct {
		at   pos
		fn   expr
		args *callArgs
	}
	filterExpr struct {
		at   pos
		x    expr
		fn   *builtin
		args *callArgs
	}
	testExpr struct {
		at     pos
		x      expr
		fn     *builtin
		args   *callArgs
		negate bool
	}
	// chainExpr is a run of + and -, or of ~, kept flat: a deep tree would cost stack, and strings are joined once.
	chainExpr struct {
		at    pos // of the first operator
		terms []expr
		ops   []chainOp // ops[i] stands before terms[i+1]
	}
	mathExpr struct {
		at   pos
		op   string
		x, y expr
	}
	unaryExpr struct {
		at  pos
		neg bool
		x   expr
	}
	notExpr struct {
		at pos
		x  expr
	}
	logicExpr struct { // a run of "and", or of "or"
		at    pos
		and   bool
		terms []expr
	}
	compareExpr struct {
		at    pos
		first expr
		rest  []comparison
	}
	condExpr struct {
		at         pos
		cond, x, y expr // y nil: undefined
	}
)

type chainOp struct {
	op byte // '+', '-' or '~'
	at pos
}

type comparison struct {
	at pos
	op string // == != < <= > >= in, not in
	x  expr
}

// callArgs are the arguments of a call, filter or test.
type callArgs struct {
	pos         []expr
	kw          []kwExpr
	star, dstar expr
}

type kwExpr struct {
	name string
	x    expr
}

// Statements.
type (
	textStmt struct{ s string }
	outStmt  struct {
		at pos
		x  expr
	}
	ifStmt struct {
		conds  []expr
		at     []pos
		bodies []block
		other  block
	}
	forStmt struct {
		at          pos
		target      target
		iter, cond  expr
		body, other block
		recursive   bool
	}
	setStmt struct {
		at     pos
		target target
		x      expr
	}
	setBlockStmt struct {
		at      pos
		target  target
		filters []*filterExpr // applied in order; x is unset
		body    block
	}
	macroStmt struct {
		at    pos
		id    int32
		macro *macroDef
	}
	callBlockStmt struct {
		at     pos
		call   *callExpr
		caller *macroDef
	}
	filterStmt struct {
		at      pos
		filters []*filterExpr
		body    block
	}
	withStmt struct {
		targets []target
		values  []expr
		body    block
	}
	scopeStmt struct{ body block }
	doStmt    struct {
		at pos
		x  expr
	}
	breakStmt    struct{}
	continueStmt struct{}
)

// target is what an assignment binds: a name, an attribute of a namespace, or a tuple of targets.
type target struct {
	at    pos
	id    int32
	attr  string // set: id.attr
	tuple []target
}

// macroDef is a macro as written.
type macroDef struct {
	name     string
	params   []int32
	names    []string
	defaults []expr // of the last len(defaults) parameters
	body     block
	// what its body mentions, and so what a call may hand over beyond the parameters
	varargs, kwargs, caller bool
}
