// Checks documents by published schemas: reads {"compose": [{name, document}], "kubernetes": [{name, document}]}
// from the standard input, prints each fault on a line, and fails if there is one.
// Usage: node check.mjs FOLDER, with the packages of package-lock.json installed in FOLDER.
import {createRequire} from 'node:module';
import {readFileSync, writeFileSync} from 'node:fs';
import path from 'node:path';

const folder = path.resolve(process.argv[2]);
const require = createRequire(path.join(folder, 'package.json'));
const given = JSON.parse(readFileSync(0, 'utf8'));
const faults = [];

const {default: Ajv} = require('ajv');
// No logger: the schema names formats of its own, such as that of ports.
const ajv = new Ajv({strict: false, allErrors: true, logger: false});
const {$schema: _, ...schema} =
  JSON.parse(readFileSync(path.join(folder, 'node_modules/dclint/schemas/compose.schema.json'), 'utf8'));
const isCompose = ajv.compile(schema);
for (const {name, document} of given.compose) {
    if (!isCompose(document))
      faults.push(...isCompose.errors.map((e) => `${name}${e.instancePath}: ${e.message} ${JSON.stringify(e.params)}`));
}

// The schemas of Kubernetes allow unknown fields; TypeScript finds them,
// because the interfaces of the same package don't.
const moduleOf = ({apiVersion}) =>
    apiVersion.startsWith('monitoring.coreos.com/') ? `@kubernetes-models/prometheus-operator/${apiVersion}`
      : `kubernetes-models/${apiVersion}`;
const lines = [];
for (const {name, document} of given.kubernetes) {
    const model = require(moduleOf(document))[document.kind];
    if (!model) {
        faults.push(`${name}: ${document.apiVersion} has no ${document.kind}`);
        continue;
    }
    try {
        new model(document).validate();
    } catch (fault) {
        faults.push(`${name}: ${fault.message}`);
    }
    lines.push([name, `export const _${lines.length}: `
      + `import('${moduleOf(document)}').I${document.kind} = ${JSON.stringify(document)};`]);
}
const source = path.join(folder, 'manifests.mts');
writeFileSync(source, lines.map(([, line]) => line).join('\n'));
const ts = require('typescript');
const program = ts.createProgram([source], {strict: true, noEmit: true, skipLibCheck: true, types: [],
  target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.Node16});
for (const diagnostic of ts.getPreEmitDiagnostics(program)) {
    const line = diagnostic.file?.getLineAndCharacterOfPosition(diagnostic.start).line ?? 0;
    faults.push(`${lines[line][0]}: ${ts.flattenDiagnosticMessageText(diagnostic.messageText, ' ')}`);
}

console.log(faults.join('\n'));
process.exit(faults.length > 0 ? 1 : 0);
