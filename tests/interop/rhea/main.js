// `node main.js SCENARIO HOST PORT PREFIX`: runs one scenario against a running suite. Exit status 0 if it held.
'use strict';

const stored = require('./stored.js');
const direct = require('./direct.js');
const { Peer } = require('./peer.js');

const scenarios = { ...stored, ...direct };

async function main([scenario, host, port, prefix]) {
  if (prefix === undefined || !Object.hasOwn(scenarios, scenario)) {
    console.error('usage: node main.js SCENARIO HOST PORT PREFIX');
    return 2;
  }
  try {
    await scenarios[scenario](new Peer(host, Number(port), prefix));
    return 0;
  } catch (error) {
    console.error(error);
    return 1;
  }
}

main(process.argv.slice(2)).then((status) => process.exit(status));
